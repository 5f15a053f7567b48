// The agreed product against the sum that its header states, on every path and awkward shape.
#include "agreed/matmul.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "agreed/random.h"

namespace loom::agreed {
namespace {

std::vector<float> Normal(std::size_t n, std::uint64_t stream) {
  std::vector<float> x(n);
  FillNormal(x, 17, stream, 1.0F);
  return x;
}

/// One element after the other, as the header says.
std::vector<float> ByDefinition(const MatrixView& a, const MatrixView& b) {
  std::vector<float> c(a.rows * b.columns);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < b.columns; ++j) {
      float sum = 0;
      for (std::size_t k = 0; k < a.columns; ++k) {
        const float product =
            a.data[i * a.row_step + k * a.column_step] * b.data[k * b.row_step + j * b.column_step];
        sum = sum + product;
      }
      c[i * b.columns + j] = sum;
    }
  }
  return c;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<Isa> Paths() {
  std::vector<Isa> paths;
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (IsaSupported(isa)) paths.push_back(isa);
  }
  return paths;
}

constexpr std::array<std::size_t, 3> kShapes[] = {
    {1, 1, 1}, {3, 0, 2}, {6, 5, 64}, {7, 129, 65}, {13, 300, 9}, {40, 17, 261}, {257, 256, 30}};

TEST(Matmul, IsTheSumInTheOrderOfKOnEveryPath) {
  for (const auto& [m, k, n] : kShapes) {
    const auto a = Normal(m * k, 1);
    const auto b = Normal(k * n, 2);
    const auto expected = ByDefinition(RowMajor(a, m, k), RowMajor(b, k, n));
    for (const Isa isa : Paths()) {
      std::vector<float> c(m * n, -1.0F);
      Matmul(RowMajor(a, m, k), RowMajor(b, k, n), c, isa);
      EXPECT_TRUE(SameBits(c, expected)) << m << " " << k << " " << n << " " << IsaName(isa);
    }
  }
}

TEST(Matmul, TakesTransposedViews) {
  for (const auto& [m, k, n] : kShapes) {
    const auto a = Normal(k * m, 3);
    const auto b = Normal(n * k, 4);
    const MatrixView at = RowMajor(a, k, m).Transposed();
    const MatrixView bt = RowMajor(b, n, k).Transposed();
    const auto expected = ByDefinition(at, bt);
    for (const Isa isa : Paths()) {
      std::vector<float> c(m * n);
      Matmul(at, bt, c, isa);
      EXPECT_TRUE(SameBits(c, expected)) << m << " " << k << " " << n << " " << IsaName(isa);
    }
  }
}

TEST(Matmul, SymmetricProductsHaveTheSameBits) {
  for (const std::size_t m : {1, 5, 64, 65, 130, 263}) {
    for (const std::size_t k : {1, 3, 200}) {
      const auto x = Normal(m * k, 5);
      const MatrixView view = RowMajor(x, m, k);
      const auto gram = ByDefinition(view, view.Transposed());
      for (const Isa isa : Paths()) {
        std::vector<float> c(m * m, -1.0F);
        MatmulSymmetric(view, view.Transposed(), c, isa);
        ASSERT_TRUE(SameBits(c, gram)) << m << " " << k << " " << IsaName(isa);
        std::vector<float> square(m * m);
        MatmulSymmetric(RowMajor(c, m, m), RowMajor(c, m, m), square, isa);
        ASSERT_TRUE(SameBits(square, ByDefinition(RowMajor(c, m, m), RowMajor(c, m, m))))
            << m << " " << IsaName(isa);
      }
    }
  }
}

}  // namespace
}  // namespace loom::agreed
