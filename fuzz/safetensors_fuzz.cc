// A model file from anywhere: what is accepted lies inside the file, tensor behind tensor.
#include "tensor/safetensors.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const ByteView file = fuzz::View(data, size);
  const Result<tensor::SafetensorsContent> content = tensor::ParseSafetensors(file);
  if (!content.ok()) return 0;
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
  return 0;
}
