// manifest.json of a checkpoint: what it is of, and size and SHA-256 of each of its files. The text
// is canonical: FromJson accepts exactly what ToJson writes, so that no byte of it can change
// unnoticed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"

namespace loom::store {

inline constexpr std::size_t kMaxManifestBytes = 1u << 20;
inline constexpr std::size_t kMaxManifestFiles = 1024;
inline constexpr std::uint64_t kManifestSchema = 1;

struct ManifestFile {
  std::string name;  ///< "state.bin", "leaves.bin" or "extra/NAME.bin"
  std::uint64_t size = 0;
  Hash sha256;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  Round round = 0;
  Hash record;
  Hash root;
  Hash grid;
  std::vector<ManifestFile> files;
  bool operator==(const Manifest&) const = default;

  const ManifestFile* Find(std::string_view name) const;
};

/// [a-z0-9_-]{1,64}: may become extra/<name>.bin.
bool IsExtraName(std::string_view name);

std::string ToJson(const Manifest& manifest);
/// kInvalid for another schema (both numbers shown), kCorrupt for everything else that is wrong.
Result<Manifest> FromJson(std::string_view text);

}  // namespace loom::store
