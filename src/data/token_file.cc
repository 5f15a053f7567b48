#include "data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

static_assert(std::endian::native == std::endian::little, "ids are copied as they lie");

namespace loom::data {
namespace {

constexpr std::size_t kHeaderInts = 256;
constexpr std::size_t kIdsAtOnce = 1 << 18;

struct LlmC {
  std::int32_t magic, version;
  std::size_t id_bytes;
};
constexpr std::array kLlmC{LlmC{20240520, 1, 2}, LlmC{20240801, 7, 4}};

Error Bad(std::string what) {
  return MakeError(Code::kCorrupt, "token file: " + std::move(what),
                   "data.format says which kind it is: \"nanogpt\" or \"llmc\"");
}

/// Fills `out` as far as the input goes.
Result<std::size_t> Fill(ByteInput& input, MutableByteView out) {
  std::size_t done = 0;
  while (done < out.size()) {
    LOOM_ASSIGN(const std::size_t n, input.Read(out.subspan(done)));
    if (n == 0) break;
    done += n;
  }
  return done;
}

struct Layout {
  std::size_t id_bytes = 2;
  std::optional<std::uint64_t> count;
};

Result<Layout> ReadHeader(ByteInput& input) {
  std::array<std::int32_t, kHeaderInts> header{};
  LOOM_ASSIGN(const std::size_t size, Fill(input, std::as_writable_bytes(std::span(header))));
  if (size < sizeof(header)) {
    return Bad(fmt::format("{} bytes, llm.c's header has {}", size, sizeof(header)));
  }
  const auto* known = std::ranges::find(kLlmC, header[0], &LlmC::magic);
  if (known == kLlmC.end()) {
    return Bad(
        fmt::format("magic {}, llm.c writes {} or {}", header[0], kLlmC[0].magic, kLlmC[1].magic));
  }
  if (header[1] != known->version) {
    return Bad(
        fmt::format("version {}, with magic {} it is {}", header[1], known->magic, known->version));
  }
  if (header[2] < 0) return Bad(fmt::format("{} ids", header[2]));
  return Layout{known->id_bytes, static_cast<std::uint64_t>(header[2])};
}

}  // namespace

Status ReadTokenFile(ByteInput& input, TokenFileKind kind,
                     const std::function<Status(std::span<const std::int32_t>)>& visit) {
  Layout layout;
  if (kind == TokenFileKind::kLlmC) {
    LOOM_ASSIGN(layout, ReadHeader(input));
  }
  Bytes raw(kIdsAtOnce * layout.id_bytes);
  std::vector<std::int32_t> ids;
  for (std::uint64_t total = 0;;) {
    LOOM_ASSIGN(const std::size_t size, Fill(input, raw));
    if (size % layout.id_bytes != 0) {
      return Bad(fmt::format("{} bytes behind the last of {} ids of {} bytes",
                             size % layout.id_bytes, total + size / layout.id_bytes,
                             layout.id_bytes));
    }
    ids.resize(size / layout.id_bytes);
    if (layout.count && (ids.size() > *layout.count - total ||
                         (ids.size() < *layout.count - total && size < raw.size()))) {
      return Bad(fmt::format("{} ids{}, {} were promised", total + ids.size(),
                             size < raw.size() ? "" : " and more", *layout.count));
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::uint32_t id = 0;
      std::memcpy(&id, raw.data() + i * layout.id_bytes, layout.id_bytes);
      if (id > 0x7FFFFFFF) return Bad(fmt::format("id {} at index {}", id, total + i));
      ids[i] = static_cast<std::int32_t>(id);
    }
    if (!ids.empty()) LOOM_RETURN_IF_ERROR(visit(ids));
    total += ids.size();
    if (size < raw.size()) return {};
  }
}

}  // namespace loom::data
