// Where runs live on disk, from the user's side.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace loom::app {

/// dir when given, else the first ./loom-NAME-k that does not exist, NAME from the stem of
/// run_toml.
std::string ChooseFolder(const std::string& dir, const std::string& run_toml);
/// What a run is called: the stem of its run.toml.
std::string NameOfRun(const std::string& run_toml);
/// A path of the command line as a run.toml says it, whose paths are meant from its own folder.
std::string SeenFrom(const std::string& run_toml, const std::string& path);
/// Creates the folder and its parents.
Status MakeFolder(const std::string& path);

/// The folder of a start that may still come to nothing: what was not there, or was empty, before
/// Make is removed again at the end of scope unless Keep was called. Nothing is removed while
/// another process holds the folder's lock, and no run that this process did not make.
class FreshFolder {
 public:
  static Result<FreshFolder> Make(const std::string& path);
  FreshFolder(FreshFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), was_there_(other.was_there_), own_(other.own_) {}
  FreshFolder& operator=(FreshFolder&&) = delete;
  ~FreshFolder();
  void Keep() { path_.clear(); }
  /// This process holds the lock: a run that is there in the end is its own.
  void Own() { own_ = true; }

 private:
  FreshFolder(std::string path, bool was_there) : path_(std::move(path)), was_there_(was_there) {}
  std::string path_;  ///< empty: nothing to remove
  bool was_there_;    ///< empty: it stays, and is empty again
  bool own_ = false;
};

}  // namespace loom::app
