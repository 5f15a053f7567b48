// A corpus file as lines or as pieces of text, in bounded memory: a line above the limit is counted
// and passed over, a text of any length comes in pieces that end where no tokenizer's pattern
// reaches across.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/byte_input.h"

namespace loom::data {

/// Not thread-safe. Views live until the next call.
class LineReader {
 public:
  struct Line {
    std::string_view text;   ///< without its end (\n or \r\n); empty when it is too long
    std::uint64_t size = 0;  ///< in bytes, also of one that is too long
    bool too_long = false;
  };
  LineReader(ByteInput& input, std::uint64_t max_bytes) : input_(&input), max_bytes_(max_bytes) {}

  /// No line at the end. A last line needs no end.
  Result<std::optional<Line>> Next();

 private:
  Result<bool> Refill();

  ByteInput* input_;
  std::uint64_t max_bytes_;
  std::string buffer_;
  std::size_t at_ = 0;       ///< where the next line begins in buffer_
  std::size_t scanned_ = 0;  ///< no line end before this
};

/// Not thread-safe. Views live until the next call.
class PieceReader {
 public:
  PieceReader(ByteInput& input, std::size_t piece_bytes)
      : input_(&input), piece_bytes_(piece_bytes) {}

  /// Of at most piece_bytes (at least 8), none empty; a byte order mark at the start is left out.
  /// A piece ends behind a line end that no white space follows, else between two characters.
  Result<std::optional<std::string_view>> Next();
  /// Whether nothing follows the last piece.
  bool done() const { return ended_ && given_ == buffer_.size(); }

 private:
  ByteInput* input_;
  std::size_t piece_bytes_;
  std::string buffer_;
  std::size_t given_ = 0;  ///< bytes at the front that the last piece had
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace loom::data
