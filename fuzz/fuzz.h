// What every fuzz target shares: the entry point's name, bytes as our views, properties that are
// reported as a crash when they break, an input as a row of choices, and the target's seeds.
//
// A target is one file with two functions: LLVMFuzzerTestOneInput takes any bytes, MakeSeeds gives
// real ones, made by the encoders, so that seeds follow the formats.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace loom::fuzz {

inline ByteView View(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

inline std::string_view Text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Aborts, which the fuzzer keeps as a finding, when a property of the decoder does not hold.
void Expect(bool holds, std::string_view property, std::string_view details = {});
/// An error reaches people and logs: it says something, in valid, printable text of a bounded
/// length, whatever bytes it is about.
void ExpectGoodError(const Error& error);
/// The same of any other text that a peer's bytes may have a part in; one line.
void ExpectPrintable(std::string_view text, std::string_view what);

/// A target calls it when the input decoded; every seed but those of AddRefused comes to it.
void Accept();
bool Accepted();
void ResetAccepted();

/// An input as a row of choices. Past its end there are zeros.
class Input {
 public:
  explicit Input(ByteView bytes) : left_(bytes) {}
  Input(const std::uint8_t* data, std::size_t size) : left_(View(data, size)) {}

  bool empty() const { return left_.empty(); }
  std::uint8_t Byte() { return Int<std::uint8_t>(); }
  template <std::unsigned_integral T>
  T Int() {
    T value = 0;
    const ByteView raw = Take(sizeof(T));
    for (std::size_t i = 0; i < raw.size(); ++i) {
      value = static_cast<T>(value | (static_cast<std::uint64_t>(raw[i]) << (8 * i)));
    }
    return value;
  }
  /// One byte's worth: 0 .. n - 1, n at most 256.
  std::size_t Below(std::size_t n) { return n == 0 ? 0 : Byte() % n; }
  /// At most n bytes.
  ByteView Take(std::size_t n);
  /// A u16 length, then at most that many bytes.
  ByteView Chunk() { return Take(Int<std::uint16_t>()); }
  ByteView Rest() { return Take(left_.size()); }

 private:
  ByteView left_;
};

/// Writes what Input reads.
class Script {
 public:
  template <std::unsigned_integral T>
  Script& Int(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      out_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    return *this;
  }
  Script& Byte(std::size_t value) { return Int(static_cast<std::uint8_t>(value)); }
  Script& Raw(ByteView bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Script& Chunk(ByteView bytes) { return Int(static_cast<std::uint16_t>(bytes.size())).Raw(bytes); }
  const Bytes& bytes() const { return out_; }

 private:
  Bytes out_;
};

/// Inputs to begin with, by name.
class Seeds {
 public:
  struct Seed {
    std::string name;
    Bytes bytes;
    bool refused = false;
  };
  void Add(std::string name, ByteView bytes) {
    seeds_.push_back({std::move(name), ToBytes(bytes), false});
  }
  void Add(std::string name, std::string_view text) { Add(std::move(name), AsBytes(text)); }
  void Add(std::string name, const char* text) { Add(std::move(name), std::string_view(text)); }
  void Add(std::string name, const Script& script) { Add(std::move(name), script.bytes()); }
  /// What is close to right and is not: a decoder's own case of refusal.
  void AddRefused(std::string name, ByteView bytes) {
    seeds_.push_back({std::move(name), ToBytes(bytes), true});
  }
  void AddRefused(std::string name, std::string_view text) {
    AddRefused(std::move(name), AsBytes(text));
  }
  const std::vector<Seed>& all() const { return seeds_; }

 private:
  std::vector<Seed> seeds_;
};

/// Every target has one.
void MakeSeeds(Seeds& seeds);

}  // namespace loom::fuzz
