#include "store/log_entry.h"

#include <algorithm>
#include <array>

#include "crypto/hash.h"
#include "store/append_log.h"

namespace loom::store {
namespace {

/// The most bytes hashed in the search for a repair: some seconds.
constexpr std::uint64_t kMaxHashed = 1ULL << 32;

ByteView FirstBytes(const Hash& hash, std::size_t n) { return hash.View().first(n); }

bool Same(ByteView a, ByteView b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

Hash HeadCheck(const Hash& file_id, const LogHead& head) {
  wire::Writer out;
  out.Id(file_id);
  out.Raw(AsBytes("head"));
  out.Int(head.length);
  out.Int(head.number);
  out.Int(head.synced);
  return crypto::Sha256(out.bytes());
}

Hash PayloadCheck(const Hash& file_id, std::uint64_t number, ByteView payload) {
  wire::Writer prefix;
  prefix.Id(file_id);
  prefix.Int(number);
  crypto::Sha256Stream stream;
  stream.Update(prefix.bytes());
  stream.Update(payload);
  return stream.Finish();
}

}  // namespace

void EncodeLogEntry(wire::Writer& out, const Hash& file_id, std::uint64_t number,
                    std::uint64_t synced, ByteView payload) {
  const LogHead head{static_cast<std::uint32_t>(payload.size()), number, synced};
  out.Int(head.length);
  out.Int(head.number);
  out.Int(head.synced);
  out.Raw(FirstBytes(HeadCheck(file_id, head), 4));
  out.Raw(payload);
  out.Raw(FirstBytes(PayloadCheck(file_id, number, payload), kLogCheckBytes));
}

std::optional<LogHead> DecodeLogHead(const Hash& file_id, ByteView bytes) {
  wire::Reader in(bytes.first(kLogHeadBytes));
  const LogHead head{in.Int<std::uint32_t>(), in.Int<std::uint64_t>(), in.Int<std::uint64_t>()};
  if (head.length > kMaxLogEntry || head.synced > head.number) return std::nullopt;
  if (!Same(in.Raw(4), FirstBytes(HeadCheck(file_id, head), 4))) return std::nullopt;
  return head;
}

Result<std::optional<Bytes>> ReadLogEntry(const File& file, const std::string& path,
                                          const Hash& file_id, std::uint64_t offset,
                                          std::uint64_t end, std::uint64_t number) {
  if (end - offset < kLogEntryOverhead) return std::optional<Bytes>();
  std::array<std::byte, kLogHeadBytes> raw{};
  LOOM_RETURN_IF_ERROR(ReadExactly(file, path, offset, raw));
  const auto head = DecodeLogHead(file_id, raw);
  if (!head || head->number != number || head->length > end - offset - kLogEntryOverhead) {
    return std::optional<Bytes>();
  }
  Bytes payload(head->length + kLogCheckBytes);
  LOOM_RETURN_IF_ERROR(ReadExactly(file, path, offset + kLogHeadBytes, payload));
  const ByteView view = payload;
  const Hash check = PayloadCheck(file_id, number, view.first(head->length));
  if (!Same(view.subspan(head->length), FirstBytes(check, kLogCheckBytes))) {
    return std::optional<Bytes>();
  }
  payload.resize(head->length);
  return std::optional<Bytes>(std::move(payload));
}

Result<std::optional<ByteRepair>> FindByteRepair(const File& file, const std::string& path,
                                                 const Hash& file_id, std::uint64_t offset,
                                                 std::uint64_t end, std::uint64_t number) {
  using Found = std::optional<ByteRepair>;
  if (end - offset < kLogEntryOverhead) return Found();
  std::array<std::byte, kLogHeadBytes> raw{};
  LOOM_RETURN_IF_ERROR(ReadExactly(file, path, offset, raw));
  const auto fits = [&](const std::optional<LogHead>& head) {
    return head && head->number == number && head->length <= end - offset - kLogEntryOverhead;
  };
  const auto payload_of = [&](std::uint32_t length) -> Result<Bytes> {
    Bytes payload(length + kLogCheckBytes);
    LOOM_RETURN_IF_ERROR(ReadExactly(file, path, offset + kLogHeadBytes, payload));
    return payload;
  };
  const auto head = DecodeLogHead(file_id, raw);
  if (!fits(head)) {  // the byte is in the head, or there is none
    for (std::size_t i = 0; i < raw.size(); ++i) {
      const std::byte was = raw[i];
      for (int x = 1; x < 256; ++x) {
        raw[i] = was ^ static_cast<std::byte>(x);
        const auto tried = DecodeLogHead(file_id, raw);
        if (!fits(tried)) continue;
        LOOM_ASSIGN(Bytes payload, payload_of(tried->length));
        const ByteView view = payload;
        const Hash check = PayloadCheck(file_id, number, view.first(tried->length));
        if (Same(view.subspan(tried->length), FirstBytes(check, kLogCheckBytes))) {
          payload.resize(tried->length);
          return Found(ByteRepair{offset + i, raw[i], std::move(payload)});
        }
      }
      raw[i] = was;
    }
    return Found();
  }
  LOOM_ASSIGN(Bytes payload, payload_of(head->length));
  const MutableByteView text = MutableByteView(payload).first(head->length);
  const ByteView check = ByteView(payload).subspan(head->length);
  const Hash right = PayloadCheck(file_id, number, text);
  std::size_t wrong = 0;
  Found in_check;
  for (std::size_t i = 0; i < kLogCheckBytes; ++i) {
    if (check[i] == right.bytes[i]) continue;
    ++wrong;
    in_check = ByteRepair{offset + kLogHeadBytes + head->length + i, right.bytes[i], ToBytes(text)};
  }
  if (wrong == 1) return in_check;
  const std::uint64_t square = std::uint64_t{head->length} * head->length;
  const bool any_byte = square <= kMaxHashed / 255;  // else single bits, for longer entries
  if (square > kMaxHashed / 8) return Found();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::byte was = text[i];
    for (int x = 1; x < 256; x = any_byte ? x + 1 : x * 2) {
      text[i] = was ^ static_cast<std::byte>(x);
      if (Same(check, FirstBytes(PayloadCheck(file_id, number, text), kLogCheckBytes)))
        return Found(ByteRepair{offset + kLogHeadBytes + i, text[i], ToBytes(text)});
    }
    text[i] = was;
  }
  return Found();
}

}  // namespace loom::store
