#include "net/hello.h"

#include "net/transport.h"
#include "wire/bytes_io.h"

namespace loom::net {
namespace {

constexpr std::uint32_t kMagic = 0x4d4f4f4c;  // "LOOM"
constexpr std::size_t kMaxVersion = 64, kMaxAnnounce = 8, kMaxAddress = 256, kMaxText = 512;

}  // namespace

Bytes Hello::Encode() const {
  wire::Writer w;
  w.Int(kMagic);
  w.Int(generation);
  w.Id(run);
  w.Int(static_cast<std::uint8_t>(kind));
  w.Raw(instance);
  w.Int(session);
  w.Int(features);
  w.Int(listen_port);
  w.Text(version);
  w.Count(announce.size());
  for (const std::string& address : announce) w.Text(address);
  w.Var(blob);
  return std::move(w).Take();
}

Result<Hello> Hello::Decode(ByteView bytes, std::uint32_t our_generation) {
  wire::Reader r(bytes);
  Hello out;
  if (r.Int<std::uint32_t>() != kMagic) r.Fail("another protocol than Loom's");
  out.generation = r.Int<std::uint32_t>();
  out.run = r.GetId<RunTag>();
  if (r.ok() && out.generation != our_generation) return out;
  const auto kind = r.Int<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(ConnectionKind::kBulk)) r.Fail("an unknown connection kind");
  out.kind = static_cast<ConnectionKind>(kind & 1);
  if (const ByteView raw = r.Raw(out.instance.size()); !raw.empty()) {
    std::copy(raw.begin(), raw.end(), out.instance.begin());
  }
  out.session = r.Int<std::uint64_t>();
  out.features = r.Int<std::uint64_t>();
  out.listen_port = r.Int<std::uint16_t>();
  out.version = CleanText(r.Text(kMaxVersion));
  const std::size_t count = r.Count(kMaxAnnounce, 4);
  for (std::size_t i = 0; i < count; ++i) out.announce.push_back(CleanText(r.Text(kMaxAddress)));
  out.blob = ToBytes(r.Var(kMaxHelloBlob));
  LOOM_RETURN_IF_ERROR(r.Finish("hello"));
  return out;
}

Bytes Refusal::Encode() const {
  wire::Writer w;
  w.Int(static_cast<std::uint8_t>(code));
  w.Text(CleanText(text));
  return std::move(w).Take();
}

Result<Refusal> Refusal::Decode(ByteView bytes) {
  wire::Reader r(bytes);
  Refusal out;
  const auto code = r.Int<std::uint8_t>();
  if (code < 1 || code > static_cast<std::uint8_t>(RefuseCode::kSession)) r.Fail("an unknown code");
  out.code = static_cast<RefuseCode>(code);
  out.text = CleanText(r.Text(kMaxText));
  LOOM_RETURN_IF_ERROR(r.Finish("refusal"));
  return out;
}

std::string CleanText(std::string_view text) {
  std::string out(text.substr(0, kMaxText));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

}  // namespace loom::net
