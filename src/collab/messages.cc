#include "collab/messages.h"

#include <algorithm>
#include <array>

#include "crypto/hash.h"

namespace loom::collab {
namespace {

/// Writes the fields that Io() names.
class Out {
 public:
  explicit Out(wire::Writer& w) : w_(w) {}
  template <class... T>
  void operator()(T&... fields) {
    (Field(fields), ...);
  }
  void Var(Bytes& bytes, std::size_t) { w_.Var(bytes); }
  void Var(Slice& slice, std::size_t) { w_.Var(slice.View()); }
  void Text(std::string& text, std::size_t) { w_.Text(text); }
  template <class T, class F>
  void List(std::vector<T>& items, std::size_t, std::size_t, F&& each) {
    w_.Count(items.size());
    for (T& item : items) each(item);
  }

 private:
  template <class T>
  void Field(T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      w_.Bool(field);
    } else if constexpr (std::is_same_v<T, agreed::Exponent>) {
      w_.Int(static_cast<std::uint16_t>(field));
    } else if constexpr (std::is_unsigned_v<T>) {
      w_.Int(field);
    } else if constexpr (std::is_same_v<T, float>) {
      w_.F32(field);
    } else if constexpr (std::is_same_v<T, double>) {
      w_.F64(field);
    } else if constexpr (std::is_same_v<T, Head>) {
      (*this)(field.era, field.round, field.hash, field.root);
    } else if constexpr (requires { field.Encode(w_); }) {
      field.Encode(w_);
    } else {
      w_.Raw(field.bytes);
    }
  }
  wire::Writer& w_;
};

/// Reads them, within the caps; `whole` is what the reader reads.
class In {
 public:
  In(wire::Reader& r, const Blob& whole) : r_(r), whole_(whole) {}
  template <class... T>
  void operator()(T&... fields) {
    (Field(fields), ...);
  }
  void Var(Bytes& bytes, std::size_t max) { bytes = ToBytes(r_.Var(max)); }
  void Var(Slice& slice, std::size_t max) {
    const ByteView view = r_.Var(max);
    if (!view.empty())
      slice = {whole_, static_cast<std::uint64_t>(view.data() - whole_->data()), view.size()};
  }
  void Text(std::string& text, std::size_t max) { text = r_.Text(max); }
  template <class T, class F>
  void List(std::vector<T>& items, std::size_t max, std::size_t min_bytes, F&& each) {
    items.resize(r_.Count(max, min_bytes));
    for (T& item : items) each(item);
  }

 private:
  template <class T>
  void Field(T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      field = r_.Bool();
    } else if constexpr (std::is_same_v<T, agreed::Exponent>) {
      field = static_cast<agreed::Exponent>(r_.Int<std::uint16_t>());
      if (field < agreed::kNoExponent || field > agreed::kMaxExponent)
        r_.Fail("an impossible exponent");
    } else if constexpr (std::is_unsigned_v<T>) {
      field = r_.Int<T>();
    } else if constexpr (std::is_same_v<T, float>) {
      field = r_.F32();
    } else if constexpr (std::is_same_v<T, double>) {
      field = r_.F64();
    } else if constexpr (std::is_same_v<T, Head>) {
      (*this)(field.era, field.round, field.hash, field.root);
    } else if constexpr (requires { T::Decode(r_); }) {
      field = T::Decode(r_);
    } else {
      const ByteView raw = r_.Raw(field.bytes.size());
      std::copy(raw.begin(), raw.end(), field.bytes.begin());
    }
  }
  wire::Reader& r_;
  const Blob& whole_;
};

constexpr std::array<std::string_view, std::variant_size_v<Message>> kNames = {
    "hello",     "get_records", "record",  "plan",        "commitment",  "part",
    "arrived",   "cut",         "fix_set", "reduced",     "prepare",     "promise",
    "proposal",  "vote",        "nack",    "missing",     "join_ask",    "join_refused",
    "leave_ask", "get_leaves",  "leaves",  "get_objects", "object_data", "not_here",
    "relay",     "host_plan",   "order",   "seal",        "seal_report"};

template <std::size_t I>
Result<Message> DecodeAs(const Blob& bytes) {
  using T = std::variant_alternative_t<I, Message>;
  if constexpr (requires { T::Decode(ByteView(*bytes)); }) {
    LOOM_ASSIGN(auto message, T::Decode(*bytes));
    return Message(std::move(message));
  } else {
    T message;
    wire::Reader reader(*bytes);
    In in(reader, bytes);
    message.Io(in);
    LOOM_RETURN_IF_ERROR(reader.Finish(kNames[I]));
    return Message(std::move(message));
  }
}

template <std::size_t... I>
Result<Message> DecodeAt(std::size_t index, const Blob& bytes, std::index_sequence<I...>) {
  using Decoder = Result<Message> (*)(const Blob&);
  static constexpr std::array<Decoder, sizeof...(I)> kDecoders = {&DecodeAs<I>...};
  return kDecoders[index](bytes);
}

}  // namespace

Bytes Commitment::Text() const {
  wire::Writer writer;
  Out out(writer);
  Commitment copy = *this;
  copy.signature = {};
  copy.Io(out);
  return std::move(writer).Take();
}

Hash Commitment::Id() const { return crypto::Sha256(Text()); }

bool Commitment::Covers(WorkerIndex worker) const {
  return std::ranges::any_of(shares, [&](const WorkShare& s) { return s.worker == worker; });
}

std::uint64_t Commitment::samples() const {
  std::uint64_t sum = 0;
  for (const WorkShare& s : shares) sum += s.samples;
  return sum;
}

std::uint64_t Commitment::tokens() const {
  std::uint64_t sum = 0;
  for (const WorkShare& s : shares) sum += s.tokens;
  return sum;
}

Bytes Relay::Text() const {
  wire::Writer writer;
  writer.Id(to);
  writer.Int(number);
  writer.Int(type);
  writer.Id(crypto::Sha256(payload));
  return std::move(writer).Take();
}

std::uint16_t TypeOf(const Message& message) {
  return static_cast<std::uint16_t>(kFirstMessageType + message.index());
}

std::string_view MessageName(const Message& message) { return kNames[message.index()]; }

bool IsBulk(const Relay& relay) { return relay.payload.size() > kMaxBulkBytes / 16; }

bool IsBulk(const Message& message) {
  return std::holds_alternative<Part>(message) || std::holds_alternative<Reduced>(message) ||
         std::holds_alternative<swarm::ObjectData>(message) ||
         (std::holds_alternative<Relay>(message) && IsBulk(std::get<Relay>(message)));
}

Bytes EncodeMessage(const Message& message) {
  wire::Writer writer;
  std::visit(
      [&](const auto& m) {
        if constexpr (requires { m.Encode(writer); }) {
          m.Encode(writer);
        } else {
          Out out(writer);
          auto& fields = const_cast<std::remove_cvref_t<decltype(m)>&>(m);
          fields.Io(out);
        }
      },
      message);
  return std::move(writer).Take();
}

Result<Message> DecodeMessage(std::uint16_t type, const Blob& bytes) {
  if (type < kFirstMessageType || type >= kFirstMessageType + std::variant_size_v<Message>) {
    return MakeError(Code::kInvalid, fmt::format("unknown message type {}", type));
  }
  return DecodeAt(type - std::size_t{kFirstMessageType}, bytes,
                  std::make_index_sequence<std::variant_size_v<Message>>{});
}

}  // namespace loom::collab
