// Bytes that pass by instead of lying whole in memory: a state of gigabytes goes through these
// between the tensors that hold it and the file that keeps it, a buffer at a time.
#pragma once

#include <cstring>

#include "base/bytes.h"
#include "base/result.h"

namespace loom {

/// Takes bytes in order. Not thread-safe.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  /// After an error nothing more is written.
  virtual Status Write(ByteView bytes) = 0;
};

/// Gives bytes in order, a number of them that is known. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Bytes still to come.
  virtual std::uint64_t left() const = 0;
  /// Fills `out`; kCorrupt when fewer are left. What `out` holds after an error is not defined.
  virtual Status Read(MutableByteView out) = 0;
};

/// Collects what is small enough to lie in memory.
class BytesSink final : public ByteSink {
 public:
  Status Write(ByteView bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

/// Bytes in memory, which outlive it.
class ViewSource final : public ByteSource {
 public:
  explicit ViewSource(ByteView bytes) : bytes_(bytes) {}
  std::uint64_t left() const override { return bytes_.size(); }
  Status Read(MutableByteView out) override {
    if (out.size() > bytes_.size()) {
      return MakeError(Code::kCorrupt,
                       fmt::format("{} bytes are wanted, {} are left", out.size(), bytes_.size()));
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data(), out.size());
    bytes_ = bytes_.subspan(out.size());
    return {};
  }

 private:
  ByteView bytes_;
};

}  // namespace loom
