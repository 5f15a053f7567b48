// Where runs live on disk, from the user's side.
#pragma once

#include <string>

#include "base/result.h"

namespace loom::app {

/// dir when given, else the first ./loom-NAME-k that does not exist, NAME from the stem of
/// run_toml.
std::string ChooseFolder(const std::string& dir, const std::string& run_toml);
/// What a run is called: the stem of its run.toml.
std::string NameOfRun(const std::string& run_toml);
/// Creates the folder and its parents.
Status MakeFolder(const std::string& path);
/// Relative paths of a run.toml are meant from the folder that holds it.
std::string ResolvePath(const std::string& path, const std::string& run_toml);

}  // namespace loom::app
