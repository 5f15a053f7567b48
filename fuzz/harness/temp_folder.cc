#include "fuzz/harness/temp_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fuzz/fuzz.h"

namespace loom::fuzz {

namespace fs = std::filesystem;

TempFolder::TempFolder() {
  const fs::path memory("/dev/shm");
  std::error_code error;
  const bool there = fs::is_directory(memory, error);
  std::string name = ((there ? memory : fs::temp_directory_path()) / "loom-fuzz-XXXXXX").string();
  Expect(::mkdtemp(name.data()) != nullptr, "a folder can be made", name);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

void TempFolder::Put(std::string_view name, ByteView bytes) const {
  const std::string path = Path(name);
  if (bytes.empty()) {
    std::error_code error;
    fs::remove(path, error);
    return;
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  Expect(static_cast<bool>(out.flush()), "a file can be written", path);
}

void TempFolder::Clear() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path(), error);
}

}  // namespace loom::fuzz
