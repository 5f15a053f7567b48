#include "plain_loop.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/time.h"
#include "crypto/certificate.h"
#include "pipe.h"

namespace loom {
namespace {

sockaddr_in Loopback(std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return out;
}

/// A connected, blocking socket, with or without TLS around it.
class Pipe {
 public:
  Pipe(int fd, bool tls, bool accepting) : fd_(fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!tls) return;
    ctx_.reset(SSL_CTX_new(TLS_method()));
    const crypto::SigningKey key = crypto::SigningKey::Generate();
    const Bytes certificate = crypto::MakeCertificate(key);
    const std::unique_ptr<EVP_PKEY, Free> pkey(EVP_PKEY_new_raw_private_key(
        EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(key.seed().bytes.data()),
        key.seed().bytes.size()));
    SSL_CTX_set_min_proto_version(ctx_.get(), TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(ctx_.get(), "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_num_tickets(ctx_.get(), 0);
    SSL_CTX_use_certificate_ASN1(ctx_.get(), static_cast<int>(certificate.size()),
                                 reinterpret_cast<const unsigned char*>(certificate.data()));
    SSL_CTX_use_PrivateKey(ctx_.get(), pkey.get());
    ssl_.reset(SSL_new(ctx_.get()));
    SSL_set_fd(ssl_.get(), fd);
    if ((accepting ? SSL_accept(ssl_.get()) : SSL_connect(ssl_.get())) != 1) Die("no TLS");
  }
  ~Pipe() { ::close(fd_); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void Write(ByteView bytes) {
    while (!bytes.empty()) {
      std::size_t n = 0;
      if (ssl_ != nullptr) {
        if (SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &n) != 1) Die("a write failed");
      } else {
        const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) Die("a write failed");
        n = static_cast<std::size_t>(sent);
      }
      bytes = bytes.subspan(n);
    }
  }
  void Read(MutableByteView bytes) {
    while (!bytes.empty()) {
      std::size_t n = 0;
      if (ssl_ != nullptr) {
        if (SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &n) != 1) Die("a read failed");
      } else {
        const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
        if (got <= 0) Die("a read failed");
        n = static_cast<std::size_t>(got);
      }
      bytes = bytes.subspan(n);
    }
  }

 private:
  struct Free {
    void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
    void operator()(SSL* p) const { SSL_free(p); }
    void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  };
  int fd_;
  std::unique_ptr<SSL_CTX, Free> ctx_;
  std::unique_ptr<SSL, Free> ssl_;
};

}  // namespace

double CpuSeconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

Usage PlainSink(const Load& load, bool tls, const std::function<void(const Door&)>& open) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Die("cannot listen");
  }
  open({ntohs(address.sin_port), {}});
  Pipe pipe(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), tls, true);
  ::close(listener);
  Bytes buffer(load.frame);
  double cpu = 0;
  Time start;
  const std::byte word{1};
  for (std::size_t got = 0; got < load.warm + load.total; got += buffer.size()) {
    if (got == load.warm) {
      cpu = CpuSeconds();
      start = SystemClock().Now();
      pipe.Write({&word, 1});
    }
    pipe.Read(buffer);
  }
  pipe.Write({&word, 1});
  return {Seconds(SystemClock().Now() - start), CpuSeconds() - cpu, 0, 0};
}

Usage PlainSource(const Load& load, bool tls, const Door& door) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(door.port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    Die("cannot connect");
  Pipe pipe(fd, tls, false);
  const Bytes buffer(load.frame, std::byte{0x5a});
  double cpu = 0;
  Time start;
  std::byte word{};
  for (std::size_t sent = 0; sent < load.warm + load.total; sent += buffer.size()) {
    if (sent == load.warm) {
      pipe.Read({&word, 1});
      cpu = CpuSeconds();
      start = SystemClock().Now();
    }
    pipe.Write(buffer);
  }
  pipe.Read({&word, 1});
  return {Seconds(SystemClock().Now() - start), CpuSeconds() - cpu, 0, 0};
}

}  // namespace loom
