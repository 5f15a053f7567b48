#include "swarm/address.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

namespace loom::swarm {
namespace {

std::optional<std::array<std::uint8_t, 4>> ParseIpv4(std::string_view text) {
  std::array<std::uint8_t, 4> out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t dot = i < 3 ? text.find('.') : text.size();
    if (dot == std::string_view::npos || dot == 0 || dot > 3) return std::nullopt;
    const char* const digits = text.data();  // NOLINT(bugprone-suspicious-stringview-data-usage)
    const auto [end, error] = std::from_chars(digits, digits + dot, out[i]);
    if (error != std::errc() || end != digits + dot) return std::nullopt;
    if (dot > 1 && text[0] == '0') return std::nullopt;
    text.remove_prefix(std::min(dot + 1, text.size()));
  }
  return text.empty() ? std::optional(out) : std::nullopt;
}

bool IsHexDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/// Groups of 1 to 4 hex digits, 8 of them or fewer around one "::", an IPv4 tail for two of them.
bool IsIpv6Literal(std::string_view text) {
  const std::size_t gap = text.find("::");
  if (gap != std::string_view::npos && text.find("::", gap + 1) != std::string_view::npos) {
    return false;
  }
  std::size_t groups = 0;
  const auto count = [&](std::string_view part) {
    while (!part.empty()) {
      const std::size_t colon = part.find(':');
      const std::string_view group = part.substr(0, colon);
      const bool last = colon == std::string_view::npos;
      if (last && ParseIpv4(group)) {
        groups += 2;
      } else {
        if (group.empty() || group.size() > 4) return false;
        if (!std::all_of(group.begin(), group.end(), IsHexDigit)) return false;
        ++groups;
      }
      if (last) return true;
      part.remove_prefix(colon + 1);
      if (part.empty()) return false;
    }
    return true;
  };
  if (gap == std::string_view::npos) return count(text) && groups == 8;
  return count(text.substr(0, gap)) && count(text.substr(gap + 2)) && groups < 8;
}

bool IsName(std::string_view host) {
  while (!host.empty()) {
    const std::size_t dot = host.find('.');
    const std::string_view label = host.substr(0, dot);
    if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') {
      return false;
    }
    const bool good = std::all_of(label.begin(), label.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '_';
    });
    if (!good) return false;
    if (dot == std::string_view::npos) return true;
    host.remove_prefix(dot + 1);
  }
  return false;
}

bool LooksNumeric(std::string_view host) {
  return host.find_first_not_of("0123456789.") == std::string_view::npos;
}

Error Bad(std::string_view text, std::string_view what) {
  return MakeError(Code::kInvalid, fmt::format("address '{}': {}", text.substr(0, 300), what),
                   "write HOST:PORT, for example node.example:4001 or [2001:db8::1]:4001");
}

}  // namespace

bool Address::IsIpv4() const { return ParseIpv4(host).has_value(); }

bool Address::IsLoopback() const {
  const auto v4 = ParseIpv4(host);
  return (v4 && (*v4)[0] == 127) || host == "::1" || host == "localhost";
}

bool Address::IsPrivate() const {
  if (const auto v4 = ParseIpv4(host)) {
    const auto& a = *v4;
    return a[0] == 10 || (a[0] == 172 && a[1] >= 16 && a[1] < 32) || (a[0] == 192 && a[1] == 168) ||
           (a[0] == 169 && a[1] == 254);
  }
  if (!IsIpv6()) return host.ends_with(".local");
  return host.starts_with("fc") || host.starts_with("fd") || host.starts_with("fe8") ||
         host.starts_with("fe9") || host.starts_with("fea") || host.starts_with("feb");
}

std::string Address::ToString() const {
  return IsIpv6() ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Address> ParseAddress(std::string_view text, bool allow_port_zero) {
  std::string_view host;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return Bad(text, "'[' without ']'");
    host = text.substr(1, close - 1);
    if (!IsIpv6Literal(host)) return Bad(text, "what stands in brackets is no IPv6 address");
    if (close + 1 >= text.size() || text[close + 1] != ':') return Bad(text, "the port is missing");
    port = text.substr(close + 2);
  } else {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return Bad(text, "the port is missing");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) {
      return Bad(text, "an IPv6 address needs brackets before its port");
    }
    if (host.empty()) return Bad(text, "the host is missing");
    if (host.size() > kMaxHostLength)
      return Bad(text, "the host name is longer than 253 characters");
    if (LooksNumeric(host) ? !ParseIpv4(host).has_value() : !IsName(host)) {
      return Bad(text, "the host is neither a name nor an IP address");
    }
  }
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || error != std::errc() || end != port.data() + port.size() || number > 65535 ||
      (number == 0 && !allow_port_zero)) {
    return Bad(text,
               fmt::format("the port '{}' is not a number from 1 to 65535", port.substr(0, 20)));
  }
  std::string lower(host);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return Address{std::move(lower), static_cast<std::uint16_t>(number)};
}

}  // namespace loom::swarm
