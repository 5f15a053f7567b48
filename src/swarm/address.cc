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

using Ipv6 = std::array<std::uint16_t, 8>;

/// Groups of 1 to 4 hex digits, 8 of them or fewer around one "::", an IPv4 tail for two of them.
std::optional<Ipv6> ParseIpv6(std::string_view text) {
  const std::size_t gap = text.find("::");
  if (gap != std::string_view::npos && text.find("::", gap + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  const auto groups_of = [](std::string_view part) -> std::optional<std::vector<std::uint16_t>> {
    std::vector<std::uint16_t> groups;
    while (!part.empty()) {
      const std::size_t colon = part.find(':');
      const std::string_view group = part.substr(0, colon);
      const bool last = colon == std::string_view::npos;
      if (const auto v4 = last ? ParseIpv4(group) : std::nullopt) {
        groups.push_back(static_cast<std::uint16_t>((*v4)[0] << 8 | (*v4)[1]));
        groups.push_back(static_cast<std::uint16_t>((*v4)[2] << 8 | (*v4)[3]));
      } else {
        std::uint16_t value = 0;
        const auto [end, error] =
            std::from_chars(group.data(), group.data() + group.size(), value, 16);
        const bool whole = error == std::errc() && end == group.data() + group.size();
        if (!whole || group.size() > 4 || groups.size() == 8) return std::nullopt;
        groups.push_back(value);
      }
      if (last) break;
      part.remove_prefix(colon + 1);
      if (part.empty()) return std::nullopt;
    }
    return groups;
  };
  const bool whole = gap == std::string_view::npos;
  const auto head = groups_of(text.substr(0, gap));
  const auto tail = whole ? std::vector<std::uint16_t>{} : groups_of(text.substr(gap + 2));
  if (!head || !tail) return std::nullopt;
  const std::size_t groups = head->size() + tail->size();
  if (whole ? groups != 8 : groups > 7) return std::nullopt;
  Ipv6 out{};
  std::copy(head->begin(), head->end(), out.begin());
  std::copy_backward(tail->begin(), tail->end(), out.end());
  return out;
}

AddressScope ScopeOf(const std::array<std::uint8_t, 4>& a) {
  if (a[0] == 127) return AddressScope::kLoopback;
  const bool link_local = a[0] == 169 && a[1] == 254;
  if (a[0] == 0 || a[0] >= 224 || link_local) return AddressScope::kNowhere;
  const bool rfc_1918 =
      a[0] == 10 || (a[0] == 172 && a[1] >= 16 && a[1] < 32) || (a[0] == 192 && a[1] == 168);
  const bool shared = a[0] == 100 && a[1] >= 64 && a[1] < 128;
  return rfc_1918 || shared ? AddressScope::kPrivate : AddressScope::kGlobal;
}

AddressScope ScopeOf(const Ipv6& a) {
  const bool leading_zeros = std::all_of(a.begin(), a.begin() + 5, [](auto g) { return g == 0; });
  if (leading_zeros && a[5] == 0xffff) {  // an IPv4 address in IPv6 clothes
    return ScopeOf(
        std::array{static_cast<std::uint8_t>(a[6] >> 8), static_cast<std::uint8_t>(a[6] & 255),
                   static_cast<std::uint8_t>(a[7] >> 8), static_cast<std::uint8_t>(a[7] & 255)});
  }
  if (leading_zeros && a[5] == 0 && a[6] == 0 && a[7] <= 1) {
    return a[7] == 1 ? AddressScope::kLoopback : AddressScope::kNowhere;
  }
  const bool link_local = (a[0] & 0xffc0) == 0xfe80;
  const bool multicast = (a[0] & 0xff00) == 0xff00;
  if (link_local || multicast) return AddressScope::kNowhere;
  return (a[0] & 0xfe00) == 0xfc00 ? AddressScope::kPrivate : AddressScope::kGlobal;
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

AddressScope Address::Scope() const {
  if (const auto v4 = ParseIpv4(host)) return ScopeOf(*v4);
  if (const auto v6 = ParseIpv6(host)) return ScopeOf(*v6);
  if (host == "localhost" || host.ends_with(".localhost")) return AddressScope::kLoopback;
  return host.ends_with(".local") ? AddressScope::kPrivate : AddressScope::kGlobal;
}

bool Address::MeansSomething(bool over_loopback) const {
  const AddressScope scope = Scope();
  return scope != AddressScope::kNowhere && (over_loopback || scope != AddressScope::kLoopback);
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
    if (!ParseIpv6(host)) return Bad(text, "what stands in brackets is no IPv6 address");
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
