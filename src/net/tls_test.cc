// One TLS stream over a pair of sockets: what gathers, what is taken ahead, what an allowance holds
// back.
#include "net/tls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace loom::net {
namespace {

using Io = TlsStream::Io;

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
    a.emplace(context, fds[0], false, std::nullopt);
    b.emplace(context, fds[1], true, std::nullopt);
    Io left = Io::kWantRead, right = Io::kWantRead;
    for (int i = 0; i < 20 && (left != Io::kDone || right != Io::kDone); ++i) {
      left = a->Handshake();
      right = b->Handshake();
    }
    EXPECT_EQ(left, Io::kDone);
    EXPECT_EQ(right, Io::kDone);
  }
  ~TlsTest() override {
    for (const int fd : fds) ::close(fd);
  }
  /// Reads until the stream has no more to give.
  Io ReadAll(std::size_t allowance) {
    for (;;) {
      std::size_t n = 0;
      const std::size_t before = got.size();
      got.resize(before + 20'000);
      const Io io = b->Read(MutableByteView(got).subspan(before), allowance, n);
      got.resize(before + n);
      if (io != Io::kDone) return io;
    }
  }

  std::array<int, 2> fds{};
  TlsContext context{crypto::SigningKey::Generate()};
  std::optional<TlsStream> a, b;
  Bytes got;
};

TEST_F(TlsTest, RecordsGatherUntilTheFlush) {
  const Bytes text(50'000, std::byte{7});
  const std::uint64_t before = a->wire_written();
  EXPECT_EQ(a->Write(text), Io::kDone);
  EXPECT_EQ(a->Write(text), Io::kDone);
  EXPECT_GT(a->unsent(), 100'000U);
  EXPECT_EQ(a->wire_written(), before);
  EXPECT_EQ(ReadAll(TlsStream::kReadAhead), Io::kWantRead);
  EXPECT_TRUE(got.empty());
  while (a->Flush() == Io::kWantWrite) EXPECT_EQ(ReadAll(TlsStream::kReadAhead), Io::kWantRead);
  EXPECT_EQ(a->unsent(), 0U);
  EXPECT_GT(a->wire_written(), before + 100'000);
  EXPECT_EQ(ReadAll(TlsStream::kReadAhead), Io::kWantRead);
  EXPECT_EQ(got, Bytes(100'000, std::byte{7}));
  EXPECT_EQ(b->wire_read(), a->wire_written());
}

TEST_F(TlsTest, AReadTakesNoMoreThanItsAllowance) {
  EXPECT_EQ(a->Write(Bytes(10'000, std::byte{1})), Io::kDone);
  EXPECT_EQ(a->Write(Bytes(10'000, std::byte{2})), Io::kDone);
  EXPECT_EQ(a->Flush(), Io::kDone);
  const std::uint64_t before = b->wire_read();
  std::size_t n = 0;
  Bytes room(20'000);
  EXPECT_EQ(b->Read(room, 4'000, n), Io::kWantRead);
  EXPECT_TRUE(b->starved());
  EXPECT_EQ(b->wire_read(), before + 4'000);
  EXPECT_EQ(b->Read(room, 0, n), Io::kWantRead);
  EXPECT_TRUE(b->starved());
  EXPECT_EQ(b->wire_read(), before + 4'000);
  EXPECT_EQ(b->Read(room, TlsStream::kReadAhead, n), Io::kDone);
  EXPECT_EQ(n, 10'000U);
  // The second record was taken along with the rest of the first.
  EXPECT_EQ(b->wire_read(), a->wire_written());
  EXPECT_EQ(b->Read(room, 0, n), Io::kDone);
  EXPECT_EQ(room[0], std::byte{2});
  EXPECT_EQ(b->Read(room, TlsStream::kReadAhead, n), Io::kWantRead);
  EXPECT_FALSE(b->starved());
}

TEST_F(TlsTest, WhatNobodyFlushesIsBounded) {
  const Bytes text(300'000);
  Io io = Io::kDone;
  for (int i = 0; i < 4 && io == Io::kDone; ++i) io = a->Write(text);
  EXPECT_NE(io, Io::kDone);
  EXPECT_LE(a->unsent(), TlsStream::kMaxUnsent);
}

TEST_F(TlsTest, AGoodbyeIsToldFromALoss) {
  EXPECT_EQ(a->Write(AsBytes("last")), Io::kDone);
  EXPECT_EQ(a->Flush(), Io::kDone);
  a->CloseNotify();
  EXPECT_EQ(ReadAll(TlsStream::kReadAhead), Io::kClosed);
  EXPECT_EQ(AsText(got), "last");
}

}  // namespace
}  // namespace loom::net
