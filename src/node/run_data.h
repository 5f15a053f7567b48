// A run's constant parts: the genesis record and what it pins (settings, tokenizer, token shards,
// the model that it starts from). A host makes them from run.toml and a corpus; a joiner gets the
// record from any member and then every file piece by piece, by hash.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collab/record.h"
#include "data/dataset.h"
#include "store/peer_folder.h"
#include "store/piece_list.h"
#include "train/spec.h"

namespace loom::node {

inline constexpr std::string_view kDataFolder = "data";  ///< in the peer's folder

struct Run {
  RunId id;
  collab::Record genesis;
  collab::Genesis content;
  train::RunSpec spec;
};

/// What a new run has beside its settings.
struct Founding {
  std::string name;
  const crypto::SigningKey& owner;
  crypto::PublicKey founder;  ///< the first member
  std::int64_t wall_seconds = 0;
  std::vector<crypto::PublicKey> co_owners = {};
  /// Exact mode: the founder's gradient of the run's shapes (R27).
  std::function<Result<Hash>(const train::RunSpec&)> probe = {};
  /// Told about the corpus when it has been read.
  std::function<void(const data::DataReport&)> report = {};
  /// Told how far reading and encoding the corpus are.
  data::Progress progress = {};
};

/// Builds the data under `dir`, draws the first weights or keeps those of the model that the run
/// starts from, makes and signs the genesis record.
Result<Run> MakeRun(const train::RunFile& file, const std::string& dir, const Founding& founding);

/// The settings of a run as the orders in a folder's records have left them.
Result<train::RunSpec> SettingsOf(store::PeerFolder& folder, const Run& run);
/// collab::ReadSettings of real specs.
Result<collab::SyncConfig> ReadAmendment(ByteView before, ByteView after);

/// Reads a genesis record that this peer stored or a member sent; checks signature and settings.
Result<Run> ReadRun(ByteView genesis_record);

/// The content address of a file.
Result<collab::ObjectRef> RefOf(const std::string& path);

/// One file of the run's data, or of the model that it starts from.
struct DataFile {
  std::string name;  ///< in the peer's folder, e.g. "data/tokenizer.json"
  collab::ObjectRef ref;
};
std::vector<DataFile> DataFilesOf(const collab::Genesis& genesis);
/// What of these files lies in a peer's folder.
struct DataState {
  std::vector<DataFile> missing;          ///< not there, or not whole
  std::map<Hash, store::PieceList> here;  ///< by object; checked against the genesis record
  bool manifest_mended = false;           ///< it was not what the genesis record says
};
/// Hashes every file of the right size. When nothing is missing, the manifest is there, too.
Result<DataState> CheckData(const Run& run, const std::string& dir);

/// Makes missing files again from the corpus and the model that the run was made of; their paths.
/// kCorrupt when these no longer give the same files: nothing is changed then.
Result<std::vector<std::string>> RebuildData(const std::vector<DataFile>& missing,
                                             const train::RunFile& source, const std::string& dir);

/// Serves the pieces of the run's data files by hash.
class DataServer {
 public:
  DataServer(const Run& run, const std::string& dir, std::map<Hash, store::PieceList> here);
  const store::PieceList* ListOf(const Hash& object) const;
  /// nullopt: not one of ours. Reads the file.
  std::optional<Bytes> Read(const Hash& piece) const;

 private:
  struct Place {
    std::string path;
    std::uint64_t offset = 0;
    std::size_t size = 0;
  };
  std::map<Hash, store::PieceList> lists_;
  std::map<Hash, Place> pieces_;
};

}  // namespace loom::node
