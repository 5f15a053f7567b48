#include "data/text_input.h"

#include <algorithm>
#include <span>

#include "base/utf8.h"
#include "text/unicode.h"

namespace loom::data {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;

/// Appends what one read gives; false at the end.
Result<bool> Append(ByteInput& input, std::string& buffer, std::size_t most) {
  const std::size_t before = buffer.size();
  buffer.resize(before + most);
  auto n = input.Read(std::as_writable_bytes(std::span(buffer).subspan(before)));
  buffer.resize(before + (n ? *n : 0));
  if (!n) return std::move(n).error();
  return *n > 0;
}

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Where a text that goes on is cut. Patterns take a line end together with white space behind it,
/// so none is cut off there.
std::size_t CutOf(std::string_view text) {
  for (std::size_t at = text.size() - 1; at > 0; --at) {
    if (text[at - 1] != '\n') continue;
    const Utf8Step next = DecodeUtf8(text, at);
    if (next.valid && !text::IsWhitespace(next.code_point)) return at;
  }
  std::size_t at = text.size();
  for (int back = 0; back < 3 && at > 1 && Continues(text[at - 1]); ++back) --at;
  // Before the last character; of invalid text, which goes on to its refusal, anywhere.
  return at > 1 ? at - 1 : text.size();
}

}  // namespace

Result<bool> LineReader::Refill() {
  buffer_.erase(0, at_);
  scanned_ -= at_;
  at_ = 0;
  return Append(*input_, buffer_, kReadBytes);
}

Result<std::optional<LineReader::Line>> LineReader::Next() {
  std::uint64_t dropped = 0;  // bytes of a line that is too long to keep
  for (;;) {
    const std::size_t end = buffer_.find('\n', std::max(scanned_, at_));
    const bool found = end != std::string::npos;
    const std::size_t stop = found ? end : buffer_.size();
    std::string_view text = std::string_view(buffer_).substr(at_, stop - at_);
    if (!found) {
      scanned_ = stop;
      // One more byte may be a carriage return, which is no part of the line.
      if (text.size() > max_bytes_ + 1) {
        dropped += text.size() - 1;
        at_ = stop - 1;
      }
      LOOM_ASSIGN(const bool more, Refill());
      if (more) continue;
      text = std::string_view(buffer_).substr(at_);
      if (text.empty() && dropped == 0) return std::optional<Line>();
    }
    at_ = scanned_ = found ? end + 1 : buffer_.size();
    if (text.ends_with('\r')) text.remove_suffix(1);
    const std::uint64_t size = dropped + text.size();
    if (size > max_bytes_) return std::optional(Line{{}, size, true});
    return std::optional(Line{text, size, false});
  }
}

Result<std::optional<std::string_view>> PieceReader::Next() {
  buffer_.erase(0, given_);
  given_ = 0;
  while (!ended_ && buffer_.size() <= piece_bytes_) {
    LOOM_ASSIGN(const bool more, Append(*input_, buffer_, std::min(kReadBytes, piece_bytes_ + 1)));
    ended_ = !more;
  }
  if (!begun_ && buffer_.starts_with("\xEF\xBB\xBF")) buffer_.erase(0, 3);
  begun_ = true;
  if (buffer_.empty()) return std::optional<std::string_view>();
  const std::string_view whole = buffer_;
  given_ =
      whole.size() <= piece_bytes_ && ended_ ? whole.size() : CutOf(whole.substr(0, piece_bytes_));
  return std::optional(whole.substr(0, given_));
}

}  // namespace loom::data
