// main() of the fuzz targets in ordinary builds: feeds every file under the given folders, in order
// of name, to the target once, and every prefix of each small file too. A crash or sanitizer report
// fails the test.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kPrefixesUpTo = 4096;

std::vector<std::filesystem::path> Files(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) continue;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t runs = 0;
  const std::vector<std::filesystem::path> files = Files(argc, argv);
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const std::size_t shortest = bytes.size() <= kPrefixesUpTo ? 0 : bytes.size();
    for (std::size_t size = shortest; size <= bytes.size(); ++size, ++runs) {
      // A copy of the exact size, so that a read past the end is seen.
      const std::vector<std::uint8_t> input(bytes.begin(),
                                            bytes.begin() + static_cast<std::ptrdiff_t>(size));
      LLVMFuzzerTestOneInput(input.data(), input.size());
    }
  }
  LLVMFuzzerTestOneInput(nullptr, 0);
  fmt::print("{} inputs from {} files\n", runs + 1, files.size());
  return 0;
}
