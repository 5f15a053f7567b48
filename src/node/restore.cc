#include "node/restore.h"

#include <algorithm>
#include <atomic>
#include <charconv>

#include "agreed/combine.h"
#include "agreed/state.h"
#include "collab/ledger.h"
#include "crypto/hash.h"
#include "wire/bytes_io.h"

namespace loom::node {
namespace {

using collab::Body;
using collab::Record;

constexpr std::string_view kInnerPrefix = "worker-";

std::optional<WorkerIndex> WorkerOfName(std::string_view name) {
  if (!name.starts_with(kInnerPrefix)) return std::nullopt;
  name.remove_prefix(kInnerPrefix.size());
  WorkerIndex worker = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), worker);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return worker;
}

bool IsOnlyMember(const Body& body, const PeerId& peer) {
  return body.members.size() == 1 && body.members[0].id == peer;
}

Result<std::vector<Record>> ReadRecords(store::PeerFolder& folder, const Record& genesis,
                                        const collab::SyncConfig& config, std::size_t num_tiles) {
  LOOM_ASSIGN(const std::vector<Bytes> entries, folder.records().ReadAll());
  RunId run;
  run.bytes = genesis.hash.bytes;
  std::vector<Record> records;
  const Record* parent = &genesis;
  records.reserve(entries.size());
  for (const Bytes& entry : entries) {
    LOOM_ASSIGN(Record record, Record::Decode(entry));
    if (record.body.parent != parent->hash) {
      return MakeError(Code::kCorrupt,
                       fmt::format("records.log: record {} does not follow record {}",
                                   record.body.round, parent->body.round));
    }
    LOOM_RETURN_IF_ERROR(
        CheckNextBody(parent->body, parent->hash, run, config, num_tiles, record.body));
    records.push_back(std::move(record));
    parent = &records.back();
  }
  return records;
}

Result<Blob> ReadRound(const store::PeerFolder& folder, const collab::TileLayout& layout,
                       const Body& body) {
  LOOM_ASSIGN(const store::RoundFile file, folder.OpenRound(body.round, RoundIdOf(body)));
  LOOM_ASSIGN(const std::vector<Bytes> tiles, file.ReadAll(layout.total()));
  Bytes whole;
  whole.reserve(layout.total());
  for (const Bytes& tile : tiles) whole.insert(whole.end(), tile.begin(), tile.end());
  if (whole.size() != layout.total()) {
    return MakeError(Code::kCorrupt,
                     fmt::format("the reduced bytes of round {} are {}, the grid needs {}",
                                 body.round, whole.size(), layout.total()));
  }
  return MakeBlob(std::move(whole));
}

Status StartFromFirstWeights(collab::Engine& engine, const Record& genesis,
                             const FirstWeights& first) {
  engine.state().Clear();
  LOOM_RETURN_IF_ERROR(first(engine.weights()));
  if (const Hash root = engine.Root(); root != genesis.body.root) {
    return MakeError(Code::kCorrupt,
                     fmt::format("the first weights have root {}, the genesis record says {}",
                                 root.Hex(), genesis.body.root.Hex()),
                     "this program makes other first weights than the one that began the run");
  }
  return {};
}

/// Loads the newest checkpoint whose record is in the chain; its round, 0 = none.
Result<Round> LoadCheckpoint(store::PeerFolder& folder, const store::StateLayout& layout,
                             const std::vector<Record>& records, collab::Engine& engine,
                             Restored& out) {
  Round newest = records.size();
  while (newest > 0) {
    const auto loaded = folder.checkpoints().LoadLastGood(layout, engine.state().planes(), newest);
    if (!loaded) {
      if (loaded.error().code != Code::kNotFound) return loaded.error();
      if (!folder.checkpoints().List().empty()) out.notes.push_back(loaded.error().message);
      return Round{0};
    }
    out.notes.insert(out.notes.end(), loaded->skipped.begin(), loaded->skipped.end());
    const Round round = loaded->info.round;
    if (round == 0) return round;
    const Record& record = records[round - 1];
    if (loaded->info.record == record.hash && loaded->info.root == record.body.root) {
      for (const store::ExtraFile& extra : loaded->extras) {
        const auto worker = WorkerOfName(extra.name);
        if (!worker) continue;
        LOOM_ASSIGN(const Bytes bytes,
                    folder.checkpoints().ReadExtra(round, extra.name, extra.size));
        LOOM_RETURN_IF_ERROR(engine.RestoreInner(*worker, bytes));
      }
      return round;
    }
    out.notes.push_back(fmt::format("checkpoint {} belongs to record {}, the chain has {}", round,
                                    loaded->info.record.Short(), record.hash.Short()));
    newest = round - 1;
  }
  return Round{0};
}

Result<collab::VoterState> ReadVotes(store::PeerFolder& folder) {
  LOOM_ASSIGN(const std::vector<Bytes> entries, folder.votes().ReadAll());
  collab::VoterState voter;
  for (const Bytes& entry : entries) LOOM_RETURN_IF_ERROR(voter.Apply(entry));
  return voter;
}

/// The contributions of a round, made again here. Exact mode: the units of all workers in one sum.
Result<std::vector<collab::EncodedWork>> WorkAgain(collab::Engine& engine, const Body& parent,
                                                   const Body& body,
                                                   const collab::SyncConfig& config) {
  const std::atomic<bool> never{false};
  std::vector<collab::WorkOrder> orders;
  for (const collab::Contribution& c : body.contributions) {
    auto order = collab::OrderOf(parent, c.worker, config);
    if (!order) return std::vector<collab::EncodedWork>{};
    order->ranges = c.ranges;
    orders.push_back(std::move(*order));
  }
  std::vector<collab::EncodedWork> works;
  if (config.exact) {
    LOOM_ASSIGN(
        collab::EncodedWork sum,
        engine.SumUnits(orders, collab::BoundsOfStep(parent.exponents, body.exponents), never));
    works.push_back(std::move(sum));
    return works;
  }
  for (const collab::WorkOrder& order : orders) {
    LOOM_ASSIGN(collab::EncodedWork work, engine.Work(order, never));
    works.push_back(std::move(work));
  }
  return works;
}

/// Repeats a round whose contributions can all be made again here, so that the inner state is again
/// what it was after it (R22, `replay`). Gives the reduced bytes, or null when they are not those
/// that were recorded.
Result<Blob> Repeat(collab::Engine& engine, const Body& parent, const Body& body,
                    const collab::SyncConfig& config) {
  LOOM_ASSIGN(const std::vector<collab::EncodedWork> works,
              WorkAgain(engine, parent, body, config));
  const collab::TileLayout& layout = engine.layout();
  std::vector<std::uint64_t> tokens;
  for (const collab::EncodedWork& work : works) tokens.push_back(work.done.tokens);
  const std::vector<float> weights = agreed::TokenWeights(tokens);
  std::vector<collab::ReduceInput> inputs;
  for (std::size_t k = 0; k < works.size(); ++k) {
    if (works[k].encoded == nullptr) return Blob();
    const std::uint64_t units = config.exact ? works[k].shares.size() * config.accumulation : 1;
    const std::uint64_t width = units > 1 ? collab::kWide : 1;
    collab::ReduceInput input{weights[k], units, {}};
    for (std::size_t i = 0; i < layout.num_tiles(); ++i) {
      input.tiles.push_back({works[k].encoded, width * layout.Offset(i), width * layout.Size(i)});
    }
    inputs.push_back(std::move(input));
  }
  if (inputs.empty()) return Blob();
  collab::Bounds bounds;
  if (config.exact) bounds = collab::BoundsOfStep(parent.exponents, body.exponents);
  LOOM_ASSIGN(Bytes reduced, engine.Reduce(0, layout.num_tiles(), inputs, bounds));
  for (std::size_t i = 0; i < layout.num_tiles(); ++i) {
    if (crypto::Sha256(layout.View(reduced, i)) != body.tiles[i]) return Blob();
  }
  for (const collab::Contribution& c : body.contributions) engine.Settle(c.worker, true);
  return MakeBlob(std::move(reduced));
}

/// A lone member's vote is a quorum: its round is decided, although the end came before the record.
Status KeepOwnDecision(store::PeerFolder& folder, const Record& genesis, const PeerId& self,
                       const collab::SyncConfig& config, std::size_t num_tiles, Restored& out) {
  std::vector<Record>& records = out.peer.records;
  const Record& head = records.empty() ? genesis : records.back();
  const collab::DecisionId& id = out.peer.voter.id;
  const auto& cast = out.peer.voter.vote;
  if (!cast || id.parent != head.hash || !IsOnlyMember(head.body, self)) return {};
  LOOM_ASSIGN(Record record, Record::FromBody(cast->body));
  RunId run;
  run.bytes = genesis.hash.bytes;
  LOOM_RETURN_IF_ERROR(CheckNextBody(head.body, head.hash, run, config, num_tiles, record.body));
  record.term = cast->vote.term;
  record.votes.push_back(cast->vote);
  LOOM_RETURN_IF_ERROR(folder.records().AppendAndSync(record.Encode()));
  records.push_back(std::move(record));
  return {};
}

/// Takes the engine from the state after out.state to the newest one that the folder leads to. A
/// round whose bytes are lost ends the way, unless this peer did it alone and can do it again.
Status ApplyRounds(store::PeerFolder& folder, collab::Engine& engine, const Record& genesis,
                   const PeerId& self, const collab::SyncConfig& config, Restored& out) {
  const std::vector<Record>& records = out.peer.records;
  const collab::TileLayout& layout = engine.layout();
  bool& inner_exact = out.peer.inner_exact;
  inner_exact = true;
  for (; out.state < records.size(); ++out.state) {
    const Body& parent = out.state == 0 ? genesis.body : records[out.state - 1].body;
    const Body& body = records[out.state].body;
    if (body.contributions.empty()) continue;
    auto bytes = ReadRound(folder, layout, body);
    const bool alone = IsOnlyMember(parent, self);
    if (config.exact ? !bytes.ok() : inner_exact && alone) {
      LOOM_ASSIGN(Blob repeated, Repeat(engine, parent, body, config));
      inner_exact = config.exact || repeated != nullptr;
      if (repeated == nullptr) {
        out.notes.push_back(fmt::format("round {} does not repeat here bit by bit", body.round));
      } else if (!bytes) {
        out.notes.push_back(fmt::format("round {} was worked out again with the same result: {}",
                                        body.round, bytes.error().message));
        LOOM_RETURN_IF_ERROR(WriteRound(folder, layout, body.round, *repeated));
        bytes = std::move(repeated);
      }
    } else {
      inner_exact = config.exact;
    }
    if (!bytes) {
      const bool ever_alone = std::all_of(records.begin(), records.end(), [](const Record& r) {
        return r.body.members.size() == 1;
      });
      if (ever_alone) {
        return MakeError(
            Code::kCorrupt,
            fmt::format("the way ends at round {} of {}: {}", out.state, records.size(),
                        bytes.error().message),
            "no other peer ever held it: bring back a copy of the file; loom export writes the "
            "model of the last good round");
      }
      out.notes.push_back(
          fmt::format("round {} will be fetched: {}", body.round, bytes.error().message));
      return {};
    }
    LOOM_ASSIGN(const collab::NextState next, engine.Next(**bytes, collab::ClockOf(body)));
    if (next.root != body.root) {
      return MakeError(
          Code::kCorrupt,
          fmt::format("the state after round {} would have root {}, its record says {}", body.round,
                      next.root.Hex(), body.root.Hex()));
    }
    LOOM_RETURN_IF_ERROR(engine.Apply(**bytes, collab::ClockOf(body)));
  }
  return {};
}

}  // namespace

std::string InnerName(WorkerIndex worker) { return fmt::format("{}{}", kInnerPrefix, worker); }

Hash RoundIdOf(const Body& body) { return crypto::MerkleRoot(body.tiles); }

Status WriteRound(store::PeerFolder& folder, const collab::TileLayout& layout, Round round,
                  ByteView reduced) {
  std::vector<ByteView> tiles;
  tiles.reserve(layout.num_tiles());
  for (std::size_t i = 0; i < layout.num_tiles(); ++i) tiles.push_back(layout.View(reduced, i));
  LOOM_RETURN_IF_ERROR(folder.WriteRound(round, tiles));
  return {};
}

store::StateLayout StateLayoutOf(const agreed::TileGrid& grid, std::size_t planes) {
  store::StateLayout layout;
  layout.planes = planes;
  wire::Writer identity;
  identity.Int(grid.tile_elements());
  for (const agreed::TensorShape& tensor : grid.tensors()) {
    layout.tensors.push_back(tensor.name);
    identity.Text(tensor.name);
    identity.Count(tensor.shape.size());
    for (const std::uint64_t n : tensor.shape) identity.Int(n);
  }
  for (const agreed::Tile& tile : grid.tiles())
    layout.tiles.push_back({tile.tensor, tile.offset, tile.size});
  layout.flat_size = grid.flat_size();
  layout.grid = crypto::Sha256(identity.bytes());
  return layout;
}

Result<Restored> RestorePeer(store::PeerFolder& folder, collab::Engine& engine,
                             const Record& genesis, const PeerId& self,
                             const collab::SyncConfig& config, const FirstWeights& first_weights) {
  Restored out;
  out.notes = folder.notes();
  const collab::TileLayout& tiles = engine.layout();
  const store::StateLayout layout = StateLayoutOf(engine.grid(), tiles.num_planes());
  LOOM_ASSIGN(out.peer.records, ReadRecords(folder, genesis, config, tiles.num_tiles()));
  const std::vector<Record>& records = out.peer.records;
  LOOM_ASSIGN(out.peer.voter, ReadVotes(folder));
  if (out.peer.voter.id.round > records.size() + 1) {
    out.notes.push_back(fmt::format(
        "{}/records.log ends at round {}, and this key has voted in round {}: the rounds "
        "between are fetched, or done again by a peer that was alone",
        folder.path(), records.size(), out.peer.voter.id.round));
  }
  out.peer.resumed = !records.empty() || folder.votes().size() > 0;
  LOOM_RETURN_IF_ERROR(KeepOwnDecision(folder, genesis, self, config, tiles.num_tiles(), out));

  LOOM_ASSIGN(const Round checkpoint, LoadCheckpoint(folder, layout, records, engine, out));
  if (checkpoint == 0) {
    LOOM_RETURN_IF_ERROR(StartFromFirstWeights(engine, genesis, first_weights));
  } else {
    LOOM_ASSIGN(const store::StateFile state, folder.checkpoints().OpenState(checkpoint, layout));
    out.peer.checkpoint = checkpoint;
    out.peer.leaves = state.leaves();
  }

  out.state = checkpoint;
  LOOM_RETURN_IF_ERROR(ApplyRounds(folder, engine, genesis, self, config, out));
  out.peer.state = out.state;

  for (Round r = out.state; r > 0; --r) {  // the unbroken run of rounds that can be served
    const Body& body = records[r - 1].body;
    if (!body.contributions.empty() && !folder.HasRound(r, RoundIdOf(body))) break;
    out.peer.oldest = r;
  }

  const auto& vote = out.peer.voter.vote;
  if (vote && out.peer.voter.id.round > out.state) {
    LOOM_ASSIGN(const Body body, Body::Decode(*vote->body));
    if (!body.contributions.empty()) {
      auto bytes = ReadRound(folder, tiles, body);
      if (bytes) {
        out.peer.voted_bytes = std::move(*bytes);
      } else {
        out.notes.push_back(
            fmt::format("the bytes behind the last vote: {}", bytes.error().message));
      }
    }
  }
  return out;
}

}  // namespace loom::node
