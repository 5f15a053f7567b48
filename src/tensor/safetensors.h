// safetensors files: a strict memory-mapped reader and a writer; plain C++, no libtorch. The format
// (little-endian): u64 header length, a JSON header, then one buffer that the tensors cover without
// a hole. Every way in which a file can be wrong has its own named fault.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/result.h"

namespace loom::tensor {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kF64, kI64, kI32, kI16, kI8, kU8, kBool };

std::string_view DTypeName(DType dtype);  ///< the name in the file, e.g. "BF16"
std::size_t DTypeSize(DType dtype);       ///< bytes of an element
std::optional<DType> ParseDType(std::string_view name);
/// shape x element size in bytes; false when it does not fit 64 bits.
bool ByteSize(const std::vector<std::uint64_t>& shape, DType dtype, std::uint64_t& bytes);

/// Why a file was refused. The error's message starts with the fault's name.
enum class SafetensorsFault : std::uint8_t {
  kNone,
  kHeaderTooSmall,   ///< fewer than the 8 bytes of the length, or an empty header
  kHeaderTooLarge,   ///< over kMaxSafetensorsHeader, or over the limits on depth and count
  kHeaderTruncated,  ///< the file ends inside the header
  kInvalidUtf8,
  kInvalidStart,  ///< the header does not start with '{'
  kInvalidJson,   ///< no JSON, or not the object that the format asks for
  kDuplicateKey,
  kMetadataNotString,  ///< __metadata__ holds something else than strings
  kUnknownDType,
  kInvalidTensor,     ///< a tensor entry with missing, extra or mistyped fields
  kSizeMismatch,      ///< shape x dtype is not the span of data_offsets
  kOverflow,          ///< the product of the shape does not fit 64 bits
  kOffsetOutOfRange,  ///< data_offsets reversed or past the buffer
  kOverlapOrHole,     ///< the tensors do not lie back to back
  kBufferIncomplete,  ///< the tensors do not cover the buffer to its last byte
};
std::string_view SafetensorsFaultName(SafetensorsFault fault);

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  ByteView data;  ///< row-major, not aligned; lives as long as the file it came from

  std::uint64_t Numel() const { return data.size() / DTypeSize(dtype); }
};

/// What a file says, as views into its bytes. Tensors stand in the order of their data.
struct SafetensorsContent {
  std::vector<TensorView> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;

  const TensorView* Find(std::string_view name) const;
};

/// Checks and reads a whole file that lies in memory. Errors are kCorrupt; `fault` says which.
Result<SafetensorsContent> ParseSafetensors(ByteView file, SafetensorsFault* fault = nullptr);

/// A mapped file with its content.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> Open(const std::string& path);
  const SafetensorsContent& content() const { return content_; }
  const TensorView* Find(std::string_view name) const { return content_.Find(name); }

 private:
  SafetensorsFile(MappedFile map, SafetensorsContent content)
      : map_(std::move(map)), content_(std::move(content)) {}
  MappedFile map_;
  SafetensorsContent content_;
};

/// The bytes before the buffer: length and header, padded with spaces to a multiple of 64 so that
/// the first tensor is aligned. Tensors are laid out in the order given; their data may be null
/// views of the right size here. Refuses duplicate or reserved names and sizes that do not match.
Result<Bytes> SafetensorsHeader(std::span<const TensorView> tensors,
                                std::span<const std::pair<std::string, std::string>> metadata = {});

/// Writes a file atomically (aside, sync, rename).
Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                        std::span<const std::pair<std::string, std::string>> metadata = {});

/// The same for weights in F32, BF16 or F16, each as it is or all in one of these, converted piece
/// by piece: it takes some megabytes of memory, whatever the size. What is in the format already
/// stays bit for bit. Errors name tensor and element: a value that is not finite, or too large for
/// dtype.
Status WriteWeights(const std::string& path, std::span<const TensorView> tensors,
                    std::optional<DType> dtype,
                    std::span<const std::pair<std::string, std::string>> metadata = {});
Error NotFiniteError(std::string_view tensor, std::size_t element);

/// kInvalid unless the tensor is F32, BF16 or F16.
Status CheckWeightType(const TensorView& tensor);
/// Converts F32, BF16 or F16 data to fp32 (exactly). out.size() must be Numel().
Status ToFloat32(const TensorView& tensor, std::span<float> out);

}  // namespace loom::tensor
