// The bytes of a corpus file from its begin to its end, unpacked on the way when the name ends in
// .gz or .zst. A buffer at a time: whatever a file claims to unpack to, memory stays bounded. zlib
// and zstd stay inside gzip_input.cc and zstd_input.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace loom::data {

/// Not thread-safe.
class ByteInput {
 public:
  virtual ~ByteInput() = default;
  /// Fills at most `out`, which is not empty; 0 is the end. Errors: kIo, and kCorrupt for packed
  /// bytes that are cut off, changed, or followed by something else.
  virtual Result<std::size_t> Read(MutableByteView out) = 0;
  /// Bytes of the file itself that were taken so far, packed as they are.
  virtual std::uint64_t taken() const = 0;
};

/// The name without its .gz or .zst.
std::string_view UnpackedName(std::string_view path);

/// A regular file, unpacked by its ending.
Result<std::unique_ptr<ByteInput>> OpenInput(const std::string& path);

/// What a gzip file (RFC 1952; any number of members) or a zstd file (RFC 8878; frames whose window
/// is at most 2^max_window_log bytes, which is the memory they take) unpacks to.
std::unique_ptr<ByteInput> UnpackGzip(std::unique_ptr<ByteInput> packed);
std::unique_ptr<ByteInput> UnpackZstd(std::unique_ptr<ByteInput> packed, int max_window_log = 27);

/// Bytes in memory, which outlive it.
class ViewInput final : public ByteInput {
 public:
  explicit ViewInput(ByteView bytes) : bytes_(bytes) {}
  Result<std::size_t> Read(MutableByteView out) override;
  std::uint64_t taken() const override { return taken_; }

 private:
  ByteView bytes_;
  std::size_t taken_ = 0;
};

}  // namespace loom::data
