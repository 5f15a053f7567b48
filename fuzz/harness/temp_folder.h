// A folder of its own for decoders that want a path, in memory where the machine has such a place,
// removed with the object.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace loom::fuzz {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Writes a file, or removes it when there are no bytes.
  void Put(std::string_view name, ByteView bytes) const;
  /// Removes everything in it.
  void Clear() const;

 private:
  std::string path_;
};

}  // namespace loom::fuzz
