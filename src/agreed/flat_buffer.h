// A zeroed run of floats on a 64-byte boundary: weights, outer momentum, gradients, moments.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"

namespace loom::agreed {

/// Move-only. Owned by one thread at a time.
class FlatBuffer {
 public:
  FlatBuffer() = default;
  /// n zeroed floats; aborts when the memory is not there. Use Allocate for sizes a user chose.
  explicit FlatBuffer(std::size_t n);
  /// The same with an error (kLimit) that names what it is for, its bytes and those available: of a
  /// large one before the kernel has to end somebody.
  static Result<FlatBuffer> Allocate(std::size_t n, std::string_view what = "a buffer");

  std::span<float> span() { return {data_.get(), size_}; }
  std::span<const float> span() const { return {data_.get(), size_}; }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace loom::agreed
