// A joiner's data files on their way in: every piece goes to its place on disk as it arrives, so
// that a corpus may be larger than memory, and a file takes its name only when all of it is there.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "store/file_system.h"
#include "store/piece_list.h"

namespace loom::node {

/// Owner thread: the storage thread.
class DataWriter {
 public:
  DataWriter(store::FileSystem& fs, std::string folder) : fs_(&fs), folder_(std::move(folder)) {}

  /// Pieces of `list` from now on go to the file `name`, in a folder that exists.
  Status Begin(const std::string& name, const store::PieceList& list);
  /// Writes one piece wherever it occurs. The caller has checked its hash.
  Status Write(const Hash& piece, ByteView bytes);
  /// Every piece was written: the files are synced and take their names.
  Status Finish();

 private:
  struct Part {
    std::string path;
    std::unique_ptr<store::File> file;  ///< path + ".part"
  };
  struct Place {
    std::size_t part = 0;
    std::uint64_t offset = 0;
  };
  store::FileSystem* fs_;
  std::string folder_;
  std::vector<Part> parts_;
  std::multimap<Hash, Place> places_;
};

}  // namespace loom::node
