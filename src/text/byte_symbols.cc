#include "text/byte_symbols.h"

#include <cstdint>

#include "base/utf8.h"

namespace loom::text {
namespace {

constexpr std::size_t kPastSymbols = 0x144;  // the last one is U+0143

std::array<char32_t, 256> MakeSymbols() {
  std::array<char32_t, 256> symbols{};
  char32_t next = 256;
  for (std::uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    symbols[b] = printable ? static_cast<char32_t>(b) : next++;
  }
  return symbols;
}

std::array<std::int16_t, kPastSymbols> MakeBytes() {
  std::array<std::int16_t, kPastSymbols> bytes{};
  bytes.fill(-1);
  for (std::size_t b = 0; b < 256; ++b) bytes[ByteSymbols()[b]] = static_cast<std::int16_t>(b);
  return bytes;
}

}  // namespace

const std::array<char32_t, 256>& ByteSymbols() {
  static const std::array<char32_t, 256> kSymbols = MakeSymbols();
  return kSymbols;
}

std::string ToByteSymbols(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) AppendUtf8(ByteSymbols()[static_cast<unsigned char>(c)], out);
  return out;
}

std::optional<std::string> FromByteSymbols(std::string_view symbols) {
  static const std::array<std::int16_t, kPastSymbols> kBytes = MakeBytes();
  std::string out;
  out.reserve(symbols.size());
  for (std::size_t at = 0; at < symbols.size();) {
    const Utf8Step step = DecodeUtf8(symbols, at);
    if (!step.valid || step.code_point >= kPastSymbols || kBytes[step.code_point] < 0) return {};
    out.push_back(static_cast<char>(kBytes[step.code_point]));
    at += step.size;
  }
  return out;
}

}  // namespace loom::text
