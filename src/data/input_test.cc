// Unpacking and cutting of corpus files: the same bytes whatever the packing and the size of the
// reads, damage is named, memory does not depend on what a file unpacks to.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>

#include "data/byte_input.h"
#include "data/corpus.h"
#include "data/text_input.h"

namespace loom::data {
namespace {

std::string Gzipped(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstandard(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

std::unique_ptr<ByteInput> View(const std::string& bytes) {
  return std::make_unique<ViewInput>(AsBytes(bytes));
}

Result<std::string> All(ByteInput& input, std::size_t step) {
  std::string out, part(step, '\0');
  for (;;) {
    LOOM_ASSIGN(const std::size_t n, input.Read(std::as_writable_bytes(std::span(part))));
    if (n == 0) return out;
    out.append(part, 0, n);
  }
}

using Pack = std::string (*)(std::string_view);
using Unpack = std::unique_ptr<ByteInput> (*)(std::unique_ptr<ByteInput>);

class Packed : public ::testing::TestWithParam<std::pair<Pack, Unpack>> {
 protected:
  static std::string Do(std::string_view text) { return GetParam().first(text); }
  static Result<std::string> Undo(const std::string& packed, std::size_t step = 4096) {
    const auto input = GetParam().second(View(packed));
    return All(*input, step);
  }
  static std::string Text() {
    std::string text;
    for (int i = 0; i < 20000; ++i) text += std::to_string(i * i % 9973) + (i % 9 ? " " : "\n");
    return text;
  }
};

TEST_P(Packed, ComesBackInReadsOfEverySize) {
  for (const std::string& text : {std::string(), std::string("x"), Text()}) {
    for (const std::size_t step : {1U, 7U, 4096U, 1U << 20}) {
      if (step == 1 && text.size() > 100) continue;
      const auto back = Undo(Do(text), step);
      ASSERT_TRUE(back.ok()) << back.error().ToString();
      EXPECT_EQ(*back, text);
    }
  }
  EXPECT_EQ(*Undo(Do("one ") + Do("") + Do("two")), "one two") << "members follow each other";
}

TEST_P(Packed, DamageIsNamedAndNothingIsMadeUp) {
  const std::string text = Text(), packed = Do(text);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{3}, packed.size() / 2, packed.size() - 1}) {
    const auto back = Undo(packed.substr(0, size));
    ASSERT_FALSE(back.ok()) << size;
    EXPECT_EQ(back.error().code, Code::kCorrupt);
    EXPECT_NE(back.error().message.find("ends in the middle"), std::string::npos);
  }
  for (std::size_t at = 0; at < packed.size(); at += 97) {
    std::string bad = packed;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    const auto back = Undo(bad);
    EXPECT_TRUE(!back.ok() || *back == text) << at;  // some header bytes decide nothing
  }
  EXPECT_EQ(Undo(packed + "rest").error().code, Code::kCorrupt);
  EXPECT_EQ(Undo("plain text").error().code, Code::kCorrupt);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Packed,
    ::testing::Values(std::pair<Pack, Unpack>(Gzipped, UnpackGzip),
                      std::pair<Pack, Unpack>(Zstandard, [](std::unique_ptr<ByteInput> packed) {
                        return UnpackZstd(std::move(packed));
                      })));

std::vector<std::string> Lines(const std::string& text, std::uint64_t most) {
  ViewInput input(AsBytes(text));
  LineReader lines(input, most);
  std::vector<std::string> out;
  for (;;) {
    const auto line = lines.Next();
    EXPECT_TRUE(line.ok());
    if (!line.ok() || !*line) return out;
    out.push_back((*line)->too_long ? "#" + std::to_string((*line)->size)
                                    : std::string((*line)->text));
  }
}

TEST(LineReader, LinesAndThoseThatAreTooLong) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Lines("", 5), Strings{});
  EXPECT_EQ(Lines("\n", 5), Strings{""});
  EXPECT_EQ(Lines("a\r\n\nb", 5), (Strings{"a", "", "b"}));
  EXPECT_EQ(Lines("12345\n123456\n12345\r\n123456\r\n", 5),
            (Strings{"12345", "#6", "12345", "#6"}));
  const std::string big(3 << 20, 'x');
  EXPECT_EQ(Lines("a\n" + big + "\nb\n" + big, 1000), (Strings{"a", "#3145728", "b", "#3145728"}));
  EXPECT_EQ(Lines(big + "\r\n" + big, 3 << 20), (Strings{big, big}));
}

std::vector<std::string> Pieces(const std::string& text, std::size_t most) {
  ViewInput input(AsBytes(text));
  PieceReader pieces(input, most);
  std::vector<std::string> out;
  for (;;) {
    const auto piece = pieces.Next();
    EXPECT_TRUE(piece.ok());
    if (!piece.ok() || !*piece) {
      EXPECT_TRUE(pieces.done());
      return out;
    }
    EXPECT_FALSE((*piece)->empty());
    EXPECT_LE((*piece)->size(), most);
    out.emplace_back(**piece);
  }
}

TEST(PieceReader, CutsBehindLineEndsElseBetweenCharacters) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Pieces("", 10), Strings{});
  EXPECT_EQ(Pieces("\xEF\xBB\xBFone\ntwo", 10), Strings{"one\ntwo"});
  EXPECT_EQ(Pieces("one\ntwo\nthree\nfour", 10), (Strings{"one\ntwo\n", "three\nfour"}));
  EXPECT_EQ(Pieces("ab\n  cd\n  ef\n", 10), (Strings{"ab\n  cd\n ", " ef\n"}));
  EXPECT_EQ(Pieces("a\né\n\xE2\x80\x83x\nb", 9), (Strings{"a\n", "é\n\xE2\x80\x83x\nb"}));
  std::string joined;
  const std::string text = "äöü\xF0\x9F\x98\x80漢字" + std::string(50, 'x') + "ß";
  for (std::size_t most = 8; most < 90; ++most) {
    joined.clear();
    for (const std::string& piece : Pieces(text, most)) {
      EXPECT_NE(static_cast<unsigned char>(piece[0]) & 0xC0, 0x80) << "a piece begins a character";
      joined += piece;
    }
    EXPECT_EQ(joined, text) << most;
  }
  EXPECT_EQ(Pieces(std::string(100, '\x80'), 16).size(), 8U)
      << "what is no text goes on to refusal";
}

TEST(PackedCorpus, IsReadLikeAPlainOneAndBlamedWhereItBreaks) {
  const std::string folder = ::testing::TempDir() + "loom_packed_corpus";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto put = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
  };
  put("a.jsonl.zst", Zstandard("{\"text\": \"one\"}\n{\"text\": \"two\"}\n"));
  put("b.txt.gz", Gzipped("three"));
  put("c.txt", "four");
  put("d.gz", "not read: no known ending below");
  DataConfig config;
  config.paths = {folder};
  std::string seen;
  const auto take = [&](const Document& d) -> Status {
    seen += std::string(d.text) + "|";
    return {};
  };
  ASSERT_TRUE(ReadCorpus(config, take).ok());
  EXPECT_EQ(seen, "one|two|three|four|");
  const std::string half = Zstandard("{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  put("a.jsonl.zst", half.substr(0, half.size() - 2));
  const auto cut = ReadCorpus(config, take);
  ASSERT_FALSE(cut.ok());
  EXPECT_NE(cut.error().message.find("a.jsonl.zst' line 3: bad zstd data: it ends in the middle"),
            std::string::npos)
      << cut.error().message;
  config.skip_bad = true;
  seen.clear();
  ASSERT_TRUE(ReadCorpus(config, take).ok());
  EXPECT_EQ(seen, "one|two|three|four|");
  std::filesystem::remove_all(folder);
}

TEST(PackedCorpus, ATextLargerThanAPieceComesInPartsOrNotAtAll) {
  const std::string folder = ::testing::TempDir() + "loom_large_text";
  std::filesystem::create_directories(folder);
  std::string text;
  while (text.size() < kPieceBytes + 1000) text += "a line of text, and another one\n";
  DataConfig config;
  config.skip_bad = true;
  config.paths = {folder + "/large.txt.gz"};
  for (const bool good : {true, false}) {
    if (!good) text += "\xFF";
    std::ofstream(config.paths[0], std::ios::binary) << Gzipped(text);
    std::string joined;
    std::vector<bool> begins;
    const auto stats = ReadCorpus(config, [&](const Document& d) -> Status {
      joined += d.text;
      begins.push_back(d.begins);
      return {};
    });
    ASSERT_EQ(stats.ok(), good);
    if (good) {
      EXPECT_EQ(joined, text);
      EXPECT_EQ(begins, (std::vector<bool>{true, false}));
      EXPECT_EQ(stats->documents, 1U);
    } else {
      EXPECT_EQ(joined, "");
      EXPECT_NE(
          stats.error().message.find("invalid UTF-8 at byte " + std::to_string(text.size() - 1)),
          std::string::npos)
          << stats.error().message;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace loom::data
