#include "node/restore.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <ranges>

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

/// The settings of the rounds after a record.
struct SettingsFrom {
  Round round = 0;
  collab::SyncConfig config;
};

/// The chain of the folder's records, and how its settings changed.
struct History {
  explicit History(const RestoreContext& context, std::size_t num_tiles)
      : chain(context.genesis, context.config, num_tiles, context.signer, context.read_settings),
        settings{{0, context.config}} {}

  Status Append(Record record) {
    LOOM_RETURN_IF_ERROR(chain.AppendOwn(std::move(record)));
    const Body& body = chain.head().body;
    if (body.order && !body.order->settings.empty())
      settings.push_back({body.round, chain.config()});
    return {};
  }
  const collab::SyncConfig& ConfigOf(Round round) const {
    auto it = settings.rbegin();
    while (it->round >= round && it + 1 != settings.rend()) ++it;
    return it->config;
  }
  collab::Chain chain;
  std::vector<SettingsFrom> settings;
};

Status ReadRecords(store::PeerFolder& folder, History& history) {
  LOOM_ASSIGN(const std::vector<Bytes> entries, folder.records().ReadAll());
  for (const Bytes& entry : entries) {
    LOOM_ASSIGN(Record record, Record::Decode(entry));
    if (Status follows = history.Append(std::move(record)); !follows) {
      Error error = std::move(follows).error();
      error.code = Code::kCorrupt;
      return std::move(error).Context("records.log");
    }
  }
  return {};
}

Result<Blob> ReadRound(const store::PeerFolder& folder, const collab::TileLayout& layout,
                       const Body& body) {
  LOOM_ASSIGN(const store::RoundFile file, folder.OpenRound(body.round, RoundIdOf(body)));
  return WholeRound(file, layout, body.round);
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

/// Loads the newest checkpoint that the newest state came by; its round, 0 = none.
Result<Round> LoadCheckpoint(store::PeerFolder& folder, const store::StateLayout& layout,
                             const History& history, collab::Engine& engine, Restored& out) {
  const std::vector<Round> ancestors = history.chain.Ancestors(history.chain.rounds());
  Round newest = history.chain.rounds();
  while (newest > 0) {
    const auto loaded = folder.checkpoints().LoadLastGood(layout, engine.state().planes(), newest);
    if (!loaded) {
      if (loaded.error().code != Code::kNotFound) return loaded.error();
      if (!folder.checkpoints().List().empty()) {
        out.notes.push_back(loaded.error().message + "; back to the first weights instead");
      }
      return Round{0};
    }
    const Round round = loaded->info.round;
    for (const std::string& skipped : loaded->skipped)
      out.notes.push_back(fmt::format("{}; back to that of round {} instead", skipped, round));
    if (round == 0) return round;
    const Record& record = history.chain.At(round);
    if (loaded->info.record == record.hash && loaded->info.root == record.body.root) {
      if (std::ranges::find(ancestors, round) == ancestors.end()) {  // an order returned from there
        newest = round - 1;
        continue;
      }
      for (const store::ExtraFile& extra : loaded->extras) {
        const auto worker = WorkerOfName(extra.name);
        if (!worker) continue;
        LOOM_RETURN_IF_ERROR(folder.checkpoints().ReadExtra(
            round, extra.name, [&](ByteSource& in) { return engine.RestoreInner(*worker, in); }));
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
                                                   const collab::SyncConfig& config,
                                                   const std::atomic<bool>& cut) {
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
        engine.SumUnits(orders, collab::BoundsOfStep(parent.exponents, body.exponents), cut));
    works.push_back(std::move(sum));
    return works;
  }
  for (const collab::WorkOrder& order : orders) {
    LOOM_ASSIGN(collab::EncodedWork work, engine.Work(order, cut));
    works.push_back(std::move(work));
  }
  return works;
}

Status CheckCut(const RestoreContext& context) {
  if (context.cut == nullptr || !context.cut->load()) return {};
  return MakeError(Code::kRefused, "interrupted while the state was restored");
}

/// Repeats a round whose contributions can all be made again here, so that the inner state is again
/// what it was after it (R22, `replay`). Gives the reduced bytes, or null when they are not those
/// that were recorded.
Result<Blob> Repeat(collab::Engine& engine, const Body& parent, const Body& body,
                    const collab::SyncConfig& config, const RestoreContext& context) {
  const std::atomic<bool> never{false};
  LOOM_ASSIGN(
      const std::vector<collab::EncodedWork> works,
      WorkAgain(engine, parent, body, config, context.cut != nullptr ? *context.cut : never));
  LOOM_RETURN_IF_ERROR(CheckCut(context));
  const collab::TileLayout& layout = engine.layout();
  std::vector<std::uint64_t> tokens;
  tokens.reserve(works.size());
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
Status KeepOwnDecision(store::PeerFolder& folder, const PeerId& self, History& history,
                       const collab::VoterState& voter) {
  const Record& head = history.chain.head();
  const auto& cast = voter.vote;
  if (!cast || voter.id.parent != head.hash || !IsOnlyMember(head.body, self)) return {};
  LOOM_ASSIGN(Record record, Record::FromBody(cast->body));
  record.term = cast->vote.term;
  record.votes.push_back(cast->vote);
  const Bytes encoded = record.Encode();
  LOOM_RETURN_IF_ERROR(history.Append(std::move(record)));
  return folder.records().AppendAndSync(encoded);
}

/// The reduced bytes of a round: from its file, or worked out again where this peer can.
Result<Blob> BytesOf(store::PeerFolder& folder, collab::Engine& engine, const History& history,
                     Round round, const RestoreContext& context, bool& inner_exact, Restored& out) {
  const Body& parent = history.chain.At(round - 1).body;
  const Body& body = history.chain.At(round).body;
  const collab::SyncConfig& config = history.ConfigOf(round);
  auto bytes = ReadRound(folder, engine.layout(), body);
  const bool alone = IsOnlyMember(parent, context.self);
  if (config.exact ? bytes.ok() : !inner_exact || !alone) {
    inner_exact = config.exact;
    return bytes;
  }
  if (context.progress) context.progress(round, history.chain.rounds(), true);
  LOOM_ASSIGN(Blob repeated, Repeat(engine, parent, body, config, context));
  inner_exact = config.exact || repeated != nullptr;
  if (repeated == nullptr) {
    out.notes.push_back(fmt::format("round {} does not repeat here bit by bit", round));
    return bytes;
  }
  if (bytes) return bytes;
  out.notes.push_back(fmt::format("round {} was worked out again with the same result: {}", round,
                                  bytes.error().message));
  LOOM_RETURN_IF_ERROR(WriteRound(folder, engine.layout(), round, *repeated, body.tiles));
  return repeated;
}

/// Takes the engine from the state after out.state to the newest one that the folder leads to. A
/// round whose bytes are lost ends the way, unless this peer can do it again.
Status ApplyRounds(store::PeerFolder& folder, collab::Engine& engine, const RestoreContext& context,
                   const History& history, Restored& out) {
  const collab::Chain& chain = history.chain;
  bool& inner_exact = out.peer.inner_exact;
  inner_exact = true;
  const std::vector<Round> ancestors = chain.Ancestors(chain.rounds());
  for (const Round round : std::views::reverse(ancestors)) {
    if (round <= out.state || chain.At(round).body.contributions.empty()) continue;
    const Body& body = chain.At(round).body;
    LOOM_RETURN_IF_ERROR(CheckCut(context));
    if (context.progress) context.progress(round, chain.rounds(), false);
    engine.Configure(history.ConfigOf(round));
    auto bytes = BytesOf(folder, engine, history, round, context, inner_exact, out);
    if (!bytes) {
      LOOM_RETURN_IF_ERROR(CheckCut(context));
      bool ever_alone = true;  // not as a joiner who catches up with somebody that was
      for (Round r = 0; r <= chain.rounds(); ++r)
        ever_alone = ever_alone && IsOnlyMember(chain.At(r).body, context.self);
      if (ever_alone) {
        return MakeError(
            Code::kCorrupt,
            fmt::format("the way ends at round {} of {}: {}", round - 1, chain.rounds(),
                        bytes.error().message),
            "no other peer ever held it: bring back a copy of the file; loom export writes the "
            "model of the last good round");
      }
      out.notes.push_back(
          fmt::format("round {} will be fetched: {}", round, bytes.error().message));
      return {};
    }
    LOOM_ASSIGN(const collab::NextState next,
                engine.Next(**bytes, collab::ClockOf(body), body.tiles));
    if (next.root != body.root) {
      return MakeError(
          Code::kCorrupt,
          fmt::format("the state after round {} would have root {}, its record says {}", round,
                      next.root.Hex(), body.root.Hex()));
    }
    LOOM_RETURN_IF_ERROR(engine.Apply(**bytes, collab::ClockOf(body)));
    out.state = round;
  }
  out.state = chain.rounds();  // what follows the last of them changed nothing, or returned here
  return {};
}

}  // namespace

std::string InnerName(WorkerIndex worker) { return fmt::format("{}{}", kInnerPrefix, worker); }

Hash RoundIdOf(const Body& body) { return crypto::MerkleRoot(body.tiles); }

Status WriteRound(store::PeerFolder& folder, const collab::TileLayout& layout, Round round,
                  ByteView reduced, const std::vector<Hash>& tiles) {
  std::vector<ByteView> views;
  views.reserve(layout.num_tiles());
  for (std::size_t i = 0; i < layout.num_tiles(); ++i) views.push_back(layout.View(reduced, i));
  LOOM_RETURN_IF_ERROR(folder.WriteRound(round, views, tiles));
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
                             const RestoreContext& context) {
  Restored out;
  out.notes = folder.notes();
  const collab::TileLayout& tiles = engine.layout();
  const store::StateLayout layout = StateLayoutOf(engine.grid(), tiles.num_planes());
  History history(context, tiles.num_tiles());
  LOOM_RETURN_IF_ERROR(ReadRecords(folder, history));
  const collab::Chain& chain = history.chain;
  LOOM_ASSIGN(out.peer.voter, ReadVotes(folder));
  if (out.peer.voter.id.round > chain.rounds() + 1 &&
      out.peer.voter.id.era == chain.head().body.era) {
    out.notes.push_back(fmt::format(
        "{}/records.log ends at round {}, and this key has voted in round {}: the rounds "
        "between are fetched, or done again by a peer that was alone",
        folder.path(), chain.rounds(), out.peer.voter.id.round));
  }
  out.peer.resumed = chain.rounds() > 0 || folder.votes().size() > 0;
  LOOM_RETURN_IF_ERROR(KeepOwnDecision(folder, context.self, history, out.peer.voter));

  LOOM_ASSIGN(const Round checkpoint, LoadCheckpoint(folder, layout, history, engine, out));
  if (checkpoint == 0) {
    LOOM_RETURN_IF_ERROR(StartFromFirstWeights(engine, context.genesis, context.first_weights));
  } else {
    LOOM_ASSIGN(const store::StateFile state, folder.checkpoints().OpenState(checkpoint, layout));
    out.peer.checkpoint = checkpoint;
    out.peer.leaves = state.leaves();
  }

  out.state = checkpoint;
  LOOM_RETURN_IF_ERROR(ApplyRounds(folder, engine, context, history, out));
  engine.Configure(chain.config());
  out.peer.state = out.state;

  for (Round r = out.state; r > 0; --r) {  // the unbroken run of rounds that can be served
    const Body& body = chain.At(r).body;
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
  out.peer.records = std::move(history.chain).TakeRecords();
  return out;
}

Result<Blob> WholeRound(const store::RoundFile& file, const collab::TileLayout& layout,
                        Round round) {
  if (file.TotalBytes() != layout.total() || file.num_tiles() != layout.num_tiles()) {
    return MakeError(Code::kCorrupt,
                     fmt::format("the reduced bytes of round {} are {}, the grid needs {}", round,
                                 file.TotalBytes(), layout.total()));
  }
  Bytes whole;
  whole.reserve(layout.total());
  for (std::size_t i = 0; i < file.num_tiles(); ++i) {
    LOOM_ASSIGN(const Bytes tile, file.ReadTile(i));
    whole.insert(whole.end(), tile.begin(), tile.end());
  }
  return MakeBlob(std::move(whole));
}

}  // namespace loom::node
