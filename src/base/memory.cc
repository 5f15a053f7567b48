#include "base/memory.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

namespace loom {
namespace {

constexpr std::uint64_t kUnknown = UINT64_MAX;

std::optional<std::uint64_t> LeadingNumber(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// Of a line "Name:   1234 kB", in bytes.
std::optional<std::uint64_t> FieldOf(std::string_view meminfo, std::string_view name) {
  const std::size_t at = meminfo.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  const auto kilobytes = LeadingNumber(meminfo.substr(at + name.size()));
  return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
}

/// Of a file of the kernel's, whose size reads as zero; empty when it is not there.
std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

std::uint64_t LeftInGroup() {
  const std::string groups = TextOf("/proc/self/cgroup");
  const std::size_t at = groups.find("0::");
  if (at == std::string::npos) return kUnknown;
  const std::string path = "/sys/fs/cgroup" + groups.substr(at + 3, groups.find('\n', at) - at - 3);
  const auto limit = LeadingNumber(TextOf(path + "/memory.max"));  // "max" is no number
  const auto used = LeadingNumber(TextOf(path + "/memory.current"));
  if (!limit || !used) return kUnknown;
  return *limit > *used ? *limit - *used : 0;
}

}  // namespace

std::uint64_t AvailableOf(std::string_view meminfo) {
  const auto available = FieldOf(meminfo, "MemAvailable:");
  if (!available) return kUnknown;
  return *available + FieldOf(meminfo, "SwapFree:").value_or(0);
}

std::uint64_t AvailableMemory() {
  return std::min(AvailableOf(TextOf("/proc/meminfo")), LeftInGroup());
}

Error NoMemory(std::string_view what, std::uint64_t needed, std::uint64_t available) {
  return MakeError(
      Code::kLimit,
      available == kUnknown ? fmt::format("no memory for {}: {} needed", what, MemoryText(needed))
                            : fmt::format("no memory for {}: {} needed, {} available", what,
                                          MemoryText(needed), MemoryText(available)),
      "loom train RUN.TOML --dry-run says what a run takes; use a smaller model or batch, or a "
      "machine with more memory");
}

void ReleaseFreeMemory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

std::string MemoryText(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 1e6) return fmt::format("{:.0f} kB", value / 1e3);
  return value < 1e9 ? fmt::format("{:.0f} MB", value / 1e6)
                     : fmt::format("{:.1f} GB", value / 1e9);
}

}  // namespace loom
