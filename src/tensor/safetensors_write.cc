// The writer of safetensors files: header, whole tensors, and weights converted on their way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/file_writer.h"
#include "base/json.h"
#include "tensor/floats.h"
#include "tensor/safetensors.h"

namespace loom::tensor {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;  // elements that are converted at a time

Status WriteAs(FileWriter& file, const TensorView& tensor, DType dtype, std::span<float> floats,
               MutableByteView packed) {
  const std::size_t numel = tensor.Numel();
  for (std::size_t first = 0; first < numel; first += floats.size()) {
    const std::span<float> values = floats.first(std::min(floats.size(), numel - first));
    ReadFloats(tensor, first, values);
    const auto bad = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (bad != values.end()) {
      return NotFiniteError(tensor.name, first + static_cast<std::size_t>(bad - values.begin()));
    }
    const MutableByteView out = packed.first(values.size() * DTypeSize(dtype));
    if (const auto lost = PackFloats(values, dtype, out)) {
      return MakeError(Code::kInvalid,
                       fmt::format("tensor '{}' is {} at element {}, too large for {}", tensor.name,
                                   values[*lost], first + *lost, DTypeName(dtype)),
                       "choose bf16 or fp32");
    }
    LOOM_RETURN_IF_ERROR(file.Write(out));
  }
  return {};
}

}  // namespace

Result<Bytes> SafetensorsHeader(std::span<const TensorView> tensors,
                                std::span<const std::pair<std::string, std::string>> metadata) {
  json::Object header;
  if (!metadata.empty()) {
    json::Object texts;
    for (const auto& [key, text] : metadata) texts.emplace_back(key, text);
    header.emplace_back(kSafetensorsMetadata, std::move(texts));
  }
  std::unordered_set<std::string> names;
  std::uint64_t at = 0;
  for (const TensorView& t : tensors) {
    if (t.name == kSafetensorsMetadata || !names.insert(t.name).second) {
      return MakeError(Code::kInvalid,
                       fmt::format("tensor name '{}' is reserved or used twice", t.name));
    }
    std::uint64_t bytes = 0;
    if (!ByteSize(t.shape, t.dtype, bytes) || bytes != t.data.size()) {
      return MakeError(Code::kInvalid, fmt::format("tensor '{}' has {} bytes of data, its shape "
                                                   "needs {}",
                                                   t.name, t.data.size(), bytes));
    }
    json::Array shape;
    for (const std::uint64_t dim : t.shape) shape.emplace_back(dim);
    header.emplace_back(t.name, json::Object{{"dtype", DTypeName(t.dtype)},
                                             {"shape", std::move(shape)},
                                             {"data_offsets", json::Array{at, at + bytes}}});
    at += bytes;
  }
  std::string text = json::Dump(json::Value(std::move(header)));
  text.append((64 - (sizeof(std::uint64_t) + text.size()) % 64) % 64, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    return MakeError(Code::kLimit, fmt::format("a safetensors header of {} bytes is over {}",
                                               text.size(), kMaxSafetensorsHeader));
  }
  const std::uint64_t size = text.size();
  Bytes out(sizeof size + text.size());
  std::memcpy(out.data(), &size, sizeof size);
  std::memcpy(out.data() + sizeof size, text.data(), text.size());
  return out;
}

Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                        std::span<const std::pair<std::string, std::string>> metadata) {
  LOOM_ASSIGN(const Bytes header, SafetensorsHeader(tensors, metadata));
  std::vector<ByteView> pieces{header};
  for (const TensorView& t : tensors) pieces.push_back(t.data);
  return WriteFileAtomic(path, pieces);
}

Error NotFiniteError(std::string_view tensor, std::size_t element) {
  return MakeError(
      Code::kCorrupt,
      fmt::format("tensor '{}' has a value that is not finite at element {}", tensor, element),
      "the model diverged in training or the file is damaged; fetch it again, or take an earlier "
      "state");
}

Status WriteWeights(const std::string& path, std::span<const TensorView> tensors,
                    std::optional<DType> dtype,
                    std::span<const std::pair<std::string, std::string>> metadata) {
  std::vector<TensorView> written;
  written.reserve(tensors.size());
  for (const TensorView& t : tensors) {
    LOOM_RETURN_IF_ERROR(CheckWeightType(t));
    TensorView& as = written.emplace_back(t);
    as.dtype = dtype.value_or(t.dtype);
    as.data = ByteView(static_cast<const std::byte*>(nullptr), t.Numel() * DTypeSize(as.dtype));
  }
  LOOM_ASSIGN(const Bytes header, SafetensorsHeader(written, metadata));
  LOOM_ASSIGN(FileWriter file, FileWriter::Create(path));
  LOOM_RETURN_IF_ERROR(file.Write(header));
  std::vector<float> floats(kChunk);
  Bytes packed(kChunk * sizeof(float));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    LOOM_RETURN_IF_ERROR(WriteAs(file, tensors[i], written[i].dtype, floats, packed));
  }
  return file.Finish();
}

}  // namespace loom::tensor
