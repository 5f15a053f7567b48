// A peer's folder whose files are not what they were: bytes flipped, cut, exchanged, left out, and
// logs, rounds and checkpoints with other contents under right checksums. Opening it gives an error
// for a person or a peer whose state has its record's root; and that peer goes on, alone, without a
// crash.
//
// The first byte: bit 0 chooses exact mode, bit 1 the folder of a member of three, instead of one
// that was always alone. Then changes.
#include <algorithm>

#include "crypto/hash.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/machine.h"
#include "store/manifest.h"

namespace loom::fuzz {
namespace {

using collab::Effects;
using collab::Peer;
using Disk = store::SimFileSystem;

constexpr std::size_t kMostChanges = 8;
constexpr std::size_t kStepsOfWork = 24;  // who joins can catch up meanwhile

void FilesUnder(const Disk& disk, const std::string& folder, std::vector<std::string>& out) {
  const auto entries = disk.List(folder);
  if (!entries) return;
  for (const store::DirEntry& entry : *entries) {
    const std::string path = store::JoinPath(folder, entry.name);
    if (entry.is_dir) {
      FilesUnder(disk, path, out);
    } else {
      out.push_back(path);
    }
  }
}

std::vector<std::string> Files(const Disk& disk) {
  std::vector<std::string> files;
  FilesUnder(disk, kMachineFolder, files);
  return files;
}

Bytes Read(const Disk& disk, const std::string& path) {
  auto bytes = store::ReadWholeFile(disk, path, 1U << 20);
  return bytes ? std::move(*bytes) : Bytes{};
}

void Write(Disk& disk, const std::string& path, ByteView bytes) {
  (void)store::WriteFileAtomically(disk, path, bytes);
}

void Patch(Bytes& bytes, Input& in) {
  const std::size_t at = in.Int<std::uint16_t>() % (bytes.size() + 1);
  const ByteView patch = in.Take(1 + in.Below(16));
  for (std::size_t i = 0; i < patch.size() && at + i < bytes.size(); ++i) bytes[at + i] = patch[i];
}

/// An entry of a log gets other contents, or is left out, doubled or exchanged, under right
/// checksums.
void ChangeLog(Disk& disk, const std::string& name, Input& in) {
  const std::string path = store::JoinPath(kMachineFolder, name);
  const Bytes head = Read(disk, path);
  Hash file_id;
  if (head.size() < store::kLogHeaderBytes) return;
  std::copy_n(head.begin() + 16, file_id.bytes.size(), file_id.bytes.begin());
  auto log = store::AppendLog::Open(disk, path, file_id);
  if (!log) return;
  auto entries = log->ReadAll();
  if (!entries || entries->empty()) return;
  const std::size_t which = in.Below(entries->size());
  const auto place = entries->begin() + static_cast<std::ptrdiff_t>(which);
  switch (in.Below(5)) {
    case 0:
      Patch(*place, in);
      break;
    case 1:
      entries->erase(place);
      break;
    case 2:
      entries->push_back(*place);
      break;
    case 3:
      std::iter_swap(place, entries->begin());
      break;
    default:
      *place = ToBytes(in.Chunk());
  }
  (void)log->Rewrite(*entries);
}

/// A round's bytes change, and their file is right again.
void ChangeRound(Disk& disk, Input& in) {
  std::vector<std::string> files;
  FilesUnder(disk, store::JoinPath(kMachineFolder, "rounds"), files);
  if (files.empty()) return;
  const std::string& path = files[in.Below(files.size())];
  const Round round = in.Below(8);
  auto file = store::RoundFile::Open(disk, path, round);
  if (!file) return;
  std::vector<Bytes> tiles;
  for (std::size_t i = 0; i < file->num_tiles(); ++i) {
    auto tile = file->ReadTile(i);
    if (!tile) return;
    tiles.push_back(std::move(*tile));
    if (in.Byte() % 2 == 0) Patch(tiles.back(), in);
  }
  if (in.Byte() % 4 == 0 && !tiles.empty()) tiles.pop_back();
  const std::vector<ByteView> views(tiles.begin(), tiles.end());
  std::vector<Hash> hashes(views.size());
  std::ranges::transform(views, hashes.begin(), crypto::Sha256);
  (void)store::WriteRoundFile(disk, path, round, views, hashes);
}

/// The manifest of a checkpoint says again what its files are.
void MendManifest(Disk& disk, Input& in) {
  const std::string checkpoints = store::JoinPath(kMachineFolder, "checkpoints");
  const auto folders = disk.List(checkpoints);
  if (!folders || folders->empty()) return;
  const std::string folder =
      store::JoinPath(checkpoints, (*folders)[in.Below(folders->size())].name);
  const std::string path = store::JoinPath(folder, "manifest.json");
  auto manifest = store::FromJson(AsText(Read(disk, path)));
  if (!manifest) return;
  for (store::ManifestFile& file : manifest->files) {
    const Bytes bytes = Read(disk, store::JoinPath(folder, file.name));
    file.size = bytes.size();
    file.sha256 = crypto::Sha256(bytes);
  }
  if (in.Byte() % 4 == 0) manifest->round = in.Below(8);
  Write(disk, path, AsBytes(store::ToJson(*manifest)));
}

void Change(Disk& disk, Input& in) {
  const std::vector<std::string> files = Files(disk);
  if (files.empty()) return;
  const std::size_t what = in.Below(12);
  const std::string& path = files[in.Below(files.size())];
  Bytes bytes = Read(disk, path);
  switch (what) {
    case 0:
    case 1:
      Patch(bytes, in);
      Write(disk, path, bytes);
      break;
    case 2:
      bytes.resize(in.Int<std::uint16_t>() % (bytes.size() + 1));
      Write(disk, path, bytes);
      break;
    case 3:
      Write(disk, path, in.Chunk());
      break;
    case 4:
      (void)disk.Remove(path);
      break;
    case 5:
      Write(disk, path, Read(disk, files[in.Below(files.size())]));
      break;
    case 6:
      (void)store::RemoveTree(disk, store::ParentPath(path));
      break;
    case 7:
      ChangeLog(disk, "records.log", in);
      break;
    case 8:
      ChangeLog(disk, "votes.log", in);
      break;
    case 9:
      ChangeRound(disk, in);
      break;
    case 10:
      MendManifest(disk, in);
      break;
    default: {
      const ByteView more = in.Chunk();
      bytes.insert(bytes.end(), more.begin(), more.end());
      Write(disk, path, bytes);
    }
  }
}

/// Five rounds or more of a peer that is alone, or of three.
std::shared_ptr<const Disk::Node> MakeFolder(const TinyRun& run, std::size_t peers) {
  std::vector<std::unique_ptr<Machine>> machines;
  Time now{std::chrono::hours(1)};
  for (std::size_t i = 0; i < peers; ++i) {
    machines.push_back(std::make_unique<Machine>(run, i));
    Expect(machines.back()->Start(now).ok(), "a new folder can be opened");
  }
  for (const auto& a : machines) {
    for (const auto& b : machines) {
      if (a != b) a->Call(now, [&](Peer& p, Effects& out) { p.OnPeerUp(b->id(), now, out); });
    }
  }
  for (std::size_t step = 0; step < 4000; ++step) {
    bool any = false;
    for (const auto& from : machines) {
      any = from->FinishWrite(now) || any;
      any = from->FinishJob(now, step % kStepsOfWork == 0) || any;
      for (collab::Send& send : from->TakeSent()) {
        for (const auto& to : machines) {
          if (to->id() != send.to) continue;
          any = true;
          to->Call(now, [&](Peer& p, Effects& out) {
            p.OnMessage(from->id(), std::move(send.message), now, out);
          });
        }
      }
    }
    const collab::Body& head = machines[0]->peer().chain().head().body;
    if (head.round >= 5 && head.members.size() == peers) break;
    if (any && step % kStepsOfWork != 0) continue;
    now += 100ms;
    for (const auto& machine : machines)
      machine->Call(now, [&](Peer& p, Effects& out) { p.OnTick(now, out); });
  }
  Expect(machines[0]->peer().chain().head().body.members.size() == peers,
         "the folder that inputs change is of a member of that many");
  return machines[0]->disk().Snapshot();
}

struct Setting {
  explicit Setting(bool exact)
      : run(exact), alone(MakeFolder(run, 1)), of_three(MakeFolder(run, 3)) {}
  TinyRun run;
  std::shared_ptr<const Disk::Node> alone, of_three;
};

const Setting& SettingOf(bool exact) {
  static const Setting lossy(false);
  static const Setting all_reduce(true);
  return exact ? all_reduce : lossy;
}

void ReadOnly(const Disk& disk, const TinyRun& run) {
  const store::PeerFolderView view(disk, kMachineFolder);
  if (!view.HasRun()) return;
  if (const auto genesis = view.Genesis(); !genesis) ExpectGoodError(genesis.error());
  if (const auto votes = view.Votes(); !votes) ExpectGoodError(votes.error());
  const auto records = view.Records();
  if (!records) {
    ExpectGoodError(records.error());
    return;
  }
  for (const std::string& text : records->repaired) ExpectPrintable(text, "a repair");
  for (const Bytes& entry : records->entries) {
    const auto record = collab::Record::Decode(entry);
    if (!record) ExpectGoodError(record.error());
    if (record) (void)view.OpenRound(record->body.round, node::RoundIdOf(record->body));
  }
  (void)run;
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const std::size_t kind = in.Byte();
  const fuzz::Setting& setting = fuzz::SettingOf(kind % 2 == 1);
  fuzz::Machine machine(setting.run, 0);
  machine.disk().Restore(kind & 2U ? setting.of_three : setting.alone);
  for (std::size_t i = 0; i < fuzz::kMostChanges && !in.empty(); ++i)
    fuzz::Change(machine.disk(), in);
  fuzz::ReadOnly(machine.disk(), setting.run);
  Time now{std::chrono::hours(2)};
  if (const Status started = machine.Start(now); !started) {
    fuzz::ExpectGoodError(started.error());
    return 0;
  }
  for (std::size_t step = 0; step < 40; ++step) {
    const bool wrote = machine.FinishWrite(now);
    const bool computed = machine.FinishJob(now);
    (void)machine.TakeSent();
    if (machine.wants_restart() && !machine.Start(now)) return 0;
    if (wrote || computed) continue;
    now += std::chrono::seconds(1);
    machine.Call(now, [&](collab::Peer& p, collab::Effects& out) { p.OnTick(now, out); });
  }
  const collab::PeerView view = machine.peer().View(now);
  fuzz::ExpectPrintable(view.reason, "a state's reason");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  for (const std::size_t kind : {0U, 1U, 2U, 3U}) {
    const std::string name =
        fmt::format("{}-{}", kind % 2 == 1 ? "exact" : "lossy", kind < 2 ? "alone" : "member");
    seeds.Add(name, Script().Byte(kind));
    const std::vector<std::string> files = [&] {
      Machine machine(SettingOf(kind % 2 == 1).run, 0);
      machine.disk().Restore(kind < 2 ? SettingOf(kind % 2 == 1).alone
                                      : SettingOf(kind % 2 == 1).of_three);
      return Files(machine.disk());
    }();
    for (std::size_t i = 0; i < files.size(); ++i) {
      Script flip;
      flip.Byte(kind).Byte(0).Byte(i).Int(std::uint16_t{60}).Byte(0).Byte(0x41);
      seeds.AddRefused(fmt::format("{}-flip-{}", name, i), flip.bytes());
      Script gone;
      gone.Byte(kind).Byte(4).Byte(i);
      seeds.AddRefused(fmt::format("{}-gone-{}", name, i), gone.bytes());
    }
    Script log;
    log.Byte(kind).Byte(7).Byte(0).Byte(4).Byte(1);
    seeds.AddRefused(name + "-shorter-records", log.bytes());
    Script rounds;
    rounds.Byte(kind).Byte(9).Byte(0).Byte(0).Byte(1).Byte(0).Int(std::uint16_t{8}).Byte(0).Byte(7);
    seeds.AddRefused(name + "-other-round", rounds.bytes());
    Script mended;
    mended.Byte(kind).Byte(10).Byte(0).Byte(0).Byte(1);
    seeds.Add(name + "-mended", mended);
  }
}
