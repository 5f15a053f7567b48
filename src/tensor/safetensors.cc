#include "tensor/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/json.h"
#include "base/utf8.h"
#include "tensor/floats.h"

static_assert(std::endian::native == std::endian::little, "safetensors data is read in place");

namespace loom::tensor {

namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t size;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kF32, "F32", 4},   {DType::kBF16, "BF16", 2}, {DType::kF16, "F16", 2},
    {DType::kF64, "F64", 8},   {DType::kI64, "I64", 8},   {DType::kI32, "I32", 4},
    {DType::kI16, "I16", 2},   {DType::kI8, "I8", 1},     {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1},
};
constexpr std::uint64_t kMaxU64 = std::numeric_limits<std::uint64_t>::max();
constexpr json::Limits kHeaderLimits{
    .max_bytes = kMaxSafetensorsHeader, .max_depth = 4, .max_values = 4'000'000};

const DTypeRow& RowOf(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

// Collects the fault for the caller and the error for people.
class Refusal {
 public:
  explicit Refusal(SafetensorsFault* fault) : fault_(fault) {
    if (fault_ != nullptr) *fault_ = SafetensorsFault::kNone;
  }
  Error operator()(SafetensorsFault fault, std::string detail) const {
    if (fault_ != nullptr) *fault_ = fault;
    return MakeError(Code::kCorrupt,
                     fmt::format("{}: {}", SafetensorsFaultName(fault), std::move(detail)),
                     "the file is damaged or was not written as safetensors; fetch it again");
  }

 private:
  SafetensorsFault* fault_;
};

SafetensorsFault FromJsonFault(json::Fault fault) {
  switch (fault) {
    case json::Fault::kInvalidUtf8:
      return SafetensorsFault::kInvalidUtf8;
    case json::Fault::kDuplicateKey:
      return SafetensorsFault::kDuplicateKey;
    case json::Fault::kTooLarge:
    case json::Fault::kTooMany:
      return SafetensorsFault::kHeaderTooLarge;
    default:
      return SafetensorsFault::kInvalidJson;
  }
}

struct Entry {
  TensorView view;
  std::uint64_t begin = 0, end = 0;
};

Result<Entry> ReadEntry(const std::string& name, const json::Value& value, const Refusal& refuse) {
  const json::Object* fields = value.AsObject();
  const json::Value* dtype = value.Find("dtype");
  const json::Value* shape = value.Find("shape");
  const json::Value* offsets = value.Find("data_offsets");
  if (fields == nullptr || dtype == nullptr || shape == nullptr || offsets == nullptr ||
      fields->size() != 3) {
    return refuse(SafetensorsFault::kInvalidTensor,
                  fmt::format("tensor '{}' must have exactly dtype, shape and data_offsets", name));
  }
  Entry entry;
  entry.view.name = name;
  if (dtype->AsString() == nullptr || shape->AsArray() == nullptr ||
      offsets->AsArray() == nullptr || offsets->AsArray()->size() != 2) {
    return refuse(SafetensorsFault::kInvalidTensor,
                  fmt::format("tensor '{}' has a field of the wrong type", name));
  }
  const std::optional<DType> known = ParseDType(*dtype->AsString());
  if (!known) {
    return refuse(SafetensorsFault::kUnknownDType,
                  fmt::format("tensor '{}' has dtype '{}', which Loom cannot hold", name,
                              dtype->AsString()->substr(0, 40)));
  }
  entry.view.dtype = *known;
  for (const json::Value& dim : *shape->AsArray()) {
    if (dim.AsUnsigned() == nullptr) {
      return refuse(SafetensorsFault::kInvalidTensor,
                    fmt::format("tensor '{}' has a shape that is not of whole numbers", name));
    }
    entry.view.shape.push_back(*dim.AsUnsigned());
  }
  const std::uint64_t* begin = (*offsets->AsArray())[0].AsUnsigned();
  const std::uint64_t* end = (*offsets->AsArray())[1].AsUnsigned();
  if (begin == nullptr || end == nullptr) {
    return refuse(SafetensorsFault::kInvalidTensor,
                  fmt::format("tensor '{}' has data_offsets that are not whole numbers", name));
  }
  entry.begin = *begin;
  entry.end = *end;
  return entry;
}

Result<std::vector<std::pair<std::string, std::string>>> ReadMetadata(const json::Value& value,
                                                                      const Refusal& refuse) {
  std::vector<std::pair<std::string, std::string>> out;
  if (value.AsObject() == nullptr) {
    return refuse(SafetensorsFault::kMetadataNotString, "__metadata__ is not an object");
  }
  for (const auto& [key, text] : *value.AsObject()) {
    if (text.AsString() == nullptr) {
      return refuse(SafetensorsFault::kMetadataNotString,
                    fmt::format("__metadata__ key '{}' is not a string", key.substr(0, 100)));
    }
    out.emplace_back(key, *text.AsString());
  }
  return out;
}

Status CheckLayout(std::vector<Entry>& entries, ByteView buffer, const Refusal& refuse) {
  for (const Entry& e : entries) {
    if (e.begin > e.end || e.end > buffer.size()) {
      // A tensor past the end of the buffer is a file cut short unless its numbers make no sense.
      const auto fault = e.begin > e.end || e.begin > buffer.size()
                             ? SafetensorsFault::kOffsetOutOfRange
                             : SafetensorsFault::kBufferIncomplete;
      return refuse(fault, fmt::format("tensor '{}' has data_offsets [{}, {}), the buffer has {} "
                                       "bytes",
                                       e.view.name, e.begin, e.end, buffer.size()));
    }
    std::uint64_t bytes = 0;
    if (!ByteSize(e.view.shape, e.view.dtype, bytes)) {
      return refuse(SafetensorsFault::kOverflow,
                    fmt::format("the shape of tensor '{}' overflows", e.view.name));
    }
    if (bytes != e.end - e.begin) {
      return refuse(SafetensorsFault::kSizeMismatch,
                    fmt::format("tensor '{}' needs {} bytes for its shape, data_offsets span {}",
                                e.view.name, bytes, e.end - e.begin));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.view.name) < std::tie(b.begin, b.end, b.view.name);
  });
  std::uint64_t at = 0;
  for (Entry& e : entries) {
    if (e.begin != at) {
      return refuse(SafetensorsFault::kOverlapOrHole,
                    fmt::format("tensor '{}' begins at byte {} of the buffer, the one before it "
                                "ends at {}",
                                e.view.name, e.begin, at));
    }
    at = e.end;
    e.view.data = buffer.subspan(e.begin, e.end - e.begin);
  }
  if (at != buffer.size()) {
    return refuse(SafetensorsFault::kBufferIncomplete,
                  fmt::format("the tensors cover {} bytes of a buffer of {}", at, buffer.size()));
  }
  return {};
}

}  // namespace

bool ByteSize(const std::vector<std::uint64_t>& shape, DType dtype, std::uint64_t& bytes) {
  bytes = DTypeSize(dtype);
  bool overflow = false;
  bool empty = false;
  for (const std::uint64_t dim : shape) {
    empty = empty || dim == 0;
    if (dim != 0 && bytes > kMaxU64 / dim) {
      overflow = true;
    } else if (dim != 0) {
      bytes *= dim;
    }
  }
  if (empty) bytes = 0;
  return !overflow;
}

std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }
std::size_t DTypeSize(DType dtype) { return RowOf(dtype).size; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::string_view SafetensorsFaultName(SafetensorsFault fault) {
  switch (fault) {
    case SafetensorsFault::kNone:
      return "no fault";
    case SafetensorsFault::kHeaderTooSmall:
      return "header too small";
    case SafetensorsFault::kHeaderTooLarge:
      return "header too large";
    case SafetensorsFault::kHeaderTruncated:
      return "file shorter than its header";
    case SafetensorsFault::kInvalidUtf8:
      return "invalid UTF-8 in the header";
    case SafetensorsFault::kInvalidStart:
      return "invalid start of the header";
    case SafetensorsFault::kInvalidJson:
      return "invalid JSON in the header";
    case SafetensorsFault::kDuplicateKey:
      return "duplicate key";
    case SafetensorsFault::kMetadataNotString:
      return "metadata is not text";
    case SafetensorsFault::kUnknownDType:
      return "unknown dtype";
    case SafetensorsFault::kInvalidTensor:
      return "invalid tensor entry";
    case SafetensorsFault::kSizeMismatch:
      return "shape does not match the data";
    case SafetensorsFault::kOverflow:
      return "size overflow";
    case SafetensorsFault::kOffsetOutOfRange:
      return "offset out of range";
    case SafetensorsFault::kOverlapOrHole:
      return "overlap or hole";
    case SafetensorsFault::kBufferIncomplete:
      return "buffer incomplete";
  }
  return "unknown fault";
}

const TensorView* SafetensorsContent::Find(std::string_view name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const TensorView& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

Result<SafetensorsContent> ParseSafetensors(ByteView file, SafetensorsFault* fault) {
  const Refusal refuse(fault);
  std::uint64_t header_size = 0;
  if (file.size() < sizeof header_size) {
    return refuse(SafetensorsFault::kHeaderTooSmall,
                  fmt::format("the file has {} bytes, the length alone has 8", file.size()));
  }
  std::memcpy(&header_size, file.data(), sizeof header_size);
  if (header_size > kMaxSafetensorsHeader) {
    return refuse(SafetensorsFault::kHeaderTooLarge,
                  fmt::format("{} bytes, the limit is {}", header_size, kMaxSafetensorsHeader));
  }
  if (header_size < 2) {
    return refuse(SafetensorsFault::kHeaderTooSmall,
                  fmt::format("{} bytes cannot hold an object", header_size));
  }
  if (header_size > file.size() - sizeof header_size) {
    return refuse(SafetensorsFault::kHeaderTruncated,
                  fmt::format("the header has {} bytes, the file {}", header_size, file.size()));
  }
  const std::string_view text = AsText(file.subspan(sizeof header_size, header_size));
  if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return refuse(SafetensorsFault::kInvalidUtf8, fmt::format("at byte {}", bad));
  }
  if (text[0] != '{') {
    return refuse(SafetensorsFault::kInvalidStart, "the first byte is not '{'");
  }
  json::Fault json_fault = json::Fault::kNone;
  auto parsed = json::Parse(text, kHeaderLimits, &json_fault);
  if (!parsed) return refuse(FromJsonFault(json_fault), parsed.error().message);

  SafetensorsContent content;
  std::vector<Entry> entries;
  for (const auto& [name, value] : *parsed->AsObject()) {
    if (name == kSafetensorsMetadata) {
      LOOM_ASSIGN(content.metadata, ReadMetadata(value, refuse));
    } else {
      LOOM_ASSIGN(auto entry, ReadEntry(name, value, refuse));
      entries.push_back(std::move(entry));
    }
  }
  LOOM_RETURN_IF_ERROR(
      CheckLayout(entries, file.subspan(sizeof header_size + header_size), refuse));
  content.tensors.reserve(entries.size());
  for (Entry& entry : entries) content.tensors.push_back(std::move(entry.view));
  return content;
}

Status CheckWeightType(const TensorView& tensor) {
  if (IsWeightType(tensor.dtype)) return {};
  return MakeError(Code::kInvalid,
                   fmt::format("tensor '{}' is {}, weights must be F32, BF16 or F16", tensor.name,
                               DTypeName(tensor.dtype)),
                   "convert the model to one of these types first");
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  LOOM_ASSIGN(auto map, MappedFile::Open(path));
  auto content = ParseSafetensors(map.bytes());
  if (!content) return std::move(content).error().Context(fmt::format("'{}'", path));
  return SafetensorsFile(std::move(map), std::move(content).value());
}

Status ToFloat32(const TensorView& tensor, std::span<float> out) {
  LOOM_CHECK(out.size() == tensor.Numel(), "{} elements into {}", tensor.Numel(), out.size());
  LOOM_RETURN_IF_ERROR(CheckWeightType(tensor));
  ReadFloats(tensor, 0, out);
  return {};
}

}  // namespace loom::tensor
