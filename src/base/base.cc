// Out-of-line parts of the smallest headers of base: errors, checks, hex and the system's clocks.
#include <time.h>

#include <cstdio>
#include <cstdlib>

#include "base/bytes.h"
#include "base/check.h"
#include "base/printable.h"
#include "base/result.h"
#include "base/time.h"

namespace loom {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not_found";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kIo:
      return "io";
    case Code::kDiskFull:
      return "disk_full";
    case Code::kUnreachable:
      return "unreachable";
    case Code::kTimeout:
      return "timeout";
    case Code::kRefused:
      return "refused";
    case Code::kConflict:
      return "conflict";
    case Code::kLimit:
      return "limit";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

// It may quote any bytes of a peer or a file.
std::string Error::ToString() const {
  return Printable(hint.empty() ? message : fmt::format("{} (hint: {})", message, hint));
}

Error Error::Context(std::string_view context) && {
  message = fmt::format("{}: {}", context, message);
  return std::move(*this);
}

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "%s:%d: check failed: %s %s\n", file, line, condition, message.c_str());
  std::abort();
}

std::string Hex(ByteView bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    const auto v = std::to_integer<unsigned>(b);
    out += kDigits[v >> 4];
    out += kDigits[v & 15];
  }
  return out;
}

bool ParseHex(std::string_view hex, MutableByteView out) {
  if (hex.size() != out.size() * 2) return false;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = digit(hex[2 * i]);
    const int low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::byte>(high * 16 + low);
  }
  return true;
}

namespace {
class PosixClock final : public Clock {
 public:
  Time Now() const override {
    timespec ts{};
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return Time(std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec));
  }
  std::int64_t WallSeconds() const override { return ::time(nullptr); }
};
}  // namespace

const Clock& SystemClock() {
  static const PosixClock clock;
  return clock;
}

}  // namespace loom
