#include "node/data_writer.h"

#include <set>

namespace loom::node {

Status DataWriter::Begin(const std::string& name, const store::PieceList& list) {
  Part part{store::JoinPath(folder_, name), nullptr};
  LOOM_ASSIGN(part.file, fs_->Open(part.path + ".part", store::OpenMode::kCreate));
  for (std::size_t i = 0; i < list.pieces.size(); ++i)
    places_.emplace(list.pieces[i], Place{parts_.size(), i * store::kPieceBytes});
  parts_.push_back(std::move(part));
  return {};
}

Status DataWriter::Write(const Hash& piece, ByteView bytes) {
  const auto [first, last] = places_.equal_range(piece);
  for (auto it = first; it != last; ++it)
    LOOM_RETURN_IF_ERROR(parts_[it->second.part].file->WriteAt(it->second.offset, bytes));
  return {};
}

Status DataWriter::Finish() {
  std::set<std::string> folders;
  for (Part& part : parts_) {
    LOOM_RETURN_IF_ERROR(part.file->Sync());
    part.file.reset();
    LOOM_RETURN_IF_ERROR(fs_->Rename(part.path + ".part", part.path));
    folders.insert(part.path.substr(0, part.path.rfind('/')));
  }
  for (const std::string& folder : folders) LOOM_RETURN_IF_ERROR(fs_->SyncDir(folder));
  return {};
}

}  // namespace loom::node
