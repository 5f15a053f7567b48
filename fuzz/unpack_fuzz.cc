// A packed file of a user, unpacked a little at a time, and the lines and pieces of what comes out.
// The first byte: bit 0 zstd (else gzip), bits 1 to 3 the size of a read, bit 4 not packed, bit 5
// lines (else pieces); then the file.
#include <span>
#include <string>
#include <vector>

#include "data/byte_input.h"
#include "data/text_input.h"
#include "fuzz/fuzz.h"

namespace loom::fuzz {
namespace {

constexpr std::size_t kMost = 4 << 20;  // of what a small file may claim to unpack to

/// Gives at most `step` bytes at a time and ends at kMost.
class Trickle final : public data::ByteInput {
 public:
  Trickle(std::unique_ptr<data::ByteInput> from, std::size_t step)
      : from_(std::move(from)), step_(step) {}
  Result<std::size_t> Read(MutableByteView out) override {
    if (given >= kMost) return std::size_t{0};
    LOOM_ASSIGN(const std::size_t n, from_->Read(out.first(std::min(out.size(), step_))));
    Expect(n <= out.size(), "no more than there is room for");
    given += n;
    return n;
  }
  std::uint64_t taken() const override { return from_->taken(); }
  std::size_t given = 0;

 private:
  std::unique_ptr<data::ByteInput> from_;
  std::size_t step_;
};

Status Lines(Trickle& input) {
  data::LineReader lines(input, 100);
  std::uint64_t bytes = 0;
  for (;;) {
    LOOM_ASSIGN(const auto line, lines.Next());
    if (!line) break;
    Expect(line->too_long == (line->size > 100), "only long lines are too long");
    Expect(line->too_long || line->text.size() == line->size, "a line has its size");
    bytes += line->size + 1;
  }
  Expect(bytes <= input.given + 1, "no line is longer than what was read");
  return {};
}

Status Pieces(Trickle& input) {
  data::PieceReader pieces(input, 64);
  std::size_t bytes = 0;
  for (;;) {
    LOOM_ASSIGN(const auto piece, pieces.Next());
    if (!piece) break;
    Expect(!piece->empty() && piece->size() <= 64, "a piece is neither empty nor too large");
    bytes += piece->size();
  }
  Expect(bytes == input.given || bytes + 3 == input.given, "every byte but a mark comes by");
  return {};
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const std::size_t how = in.Byte();
  std::unique_ptr<data::ByteInput> from = std::make_unique<data::ViewInput>(in.Rest());
  if ((how & 16U) == 0) {
    from = how & 1U ? data::UnpackZstd(std::move(from), 23) : data::UnpackGzip(std::move(from));
  }
  fuzz::Trickle input(std::move(from), std::size_t{1} << (2 * ((how >> 1U) & 7U)));
  const Status done = how & 32U ? fuzz::Lines(input) : fuzz::Pieces(input);
  if (!done) {
    fuzz::ExpectGoodError(done.error());
    return 0;
  }
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const std::string text =
      "{\"text\": \"It is a truth\"}\n\xEF\xBB\xBF\n" + std::string(200, 'x') + "\n";
  for (const std::size_t how : {0U, 4U, 32U}) {
    seeds.Add(fmt::format("plain-{}", how), Script().Byte(16 + how).Raw(AsBytes(text)));
  }
  // "It is a truth universally acknowledged\n", by gzip -n and by zstd.
  const std::vector<std::uint8_t> gzip{
      0x1f, 0x8b, 0x8,  0x0,  0x0,  0x0,  0x0,  0x0,  0x0,  0x3,  0xf3, 0x2c, 0x51, 0xc8, 0x2c,
      0x56, 0x48, 0x54, 0x28, 0x29, 0x2a, 0x2d, 0xc9, 0x50, 0x28, 0xcd, 0xcb, 0x2c, 0x4b, 0x2d,
      0x2a, 0x4e, 0xcc, 0xc9, 0xa9, 0x54, 0x48, 0x4c, 0xce, 0xce, 0xcb, 0x2f, 0xcf, 0x49, 0x4d,
      0x49, 0x4f, 0x4d, 0xe1, 0x2,  0x0,  0x3b, 0xb8, 0xdc, 0xb6, 0x27, 0x0,  0x0,  0x0};
  const std::vector<std::uint8_t> zstd{
      0x28, 0xb5, 0x2f, 0xfd, 0x4,  0x58, 0x39, 0x1,  0x0,  0x49, 0x74, 0x20, 0x69,
      0x73, 0x20, 0x61, 0x20, 0x74, 0x72, 0x75, 0x74, 0x68, 0x20, 0x75, 0x6e, 0x69,
      0x76, 0x65, 0x72, 0x73, 0x61, 0x6c, 0x6c, 0x79, 0x20, 0x61, 0x63, 0x6b, 0x6e,
      0x6f, 0x77, 0x6c, 0x65, 0x64, 0x67, 0x65, 0x64, 0xa,  0x73, 0x7a, 0x5e, 0xd8};
  for (const std::size_t how : {4U, 36U}) {
    seeds.Add(fmt::format("gzip-{}", how), Script().Byte(how).Raw(std::as_bytes(std::span(gzip))));
    seeds.Add(fmt::format("zstd-{}", how),
              Script().Byte(how + 1).Raw(std::as_bytes(std::span(zstd))));
  }
  seeds.AddRefused("cut", Script().Byte(4).Raw(std::as_bytes(std::span(gzip)).first(20)).bytes());
}
