// A model file from anywhere: what is accepted lies inside the file, tensor behind tensor.
#include "tensor/safetensors.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const ByteView file = fuzz::View(data, size);
  const Result<tensor::SafetensorsContent> content = tensor::ParseSafetensors(file);
  if (!content.ok()) {
    fuzz::ExpectGoodError(content.error());
    return 0;
  }
  std::size_t total = 0;
  for (const tensor::TensorView& tensor : content.value().tensors) {
    fuzz::Expect(tensor.data.size() % tensor::DTypeSize(tensor.dtype) == 0, "whole elements");
    fuzz::Expect(tensor.data.empty() ||
                     (tensor.data.data() >= file.data() &&
                      tensor.data.data() + tensor.data.size() <= file.data() + file.size()),
                 "data lies inside the file");
    total += tensor.data.size();
  }
  fuzz::Expect(total <= size, "no byte belongs to two tensors");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const Bytes data(24);
  const std::vector<tensor::TensorView> tensors = {
      {"a", tensor::DType::kF32, {2, 2}, ByteView(data).first(16)},
      {"b", tensor::DType::kBF16, {4}, ByteView(data).subspan(16, 8)}};
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
  Bytes file = tensor::SafetensorsHeader(tensors, metadata).value();
  file.insert(file.end(), data.begin(), data.end());
  seeds.Add("two", file);
  seeds.Add("none", tensor::SafetensorsHeader({}).value());
}
