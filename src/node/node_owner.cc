// What the owner of a run tells one of its peers (R14): orders for the members to take up, and the
// steps of a reset. The owner's key is read for each of them and never kept.
#include <algorithm>

#include "crypto/hash.h"
#include "node/node.h"
#include "node/owner_key.h"

namespace loom::node {
namespace {

std::string IdOf(const collab::Order& order, const RunId& run) {
  return crypto::Sha256(order.Text(run)).Hex();
}

}  // namespace

Result<crypto::SigningKey> Node::OwnerKey(const std::string& named) const {
  const std::string path = named.empty() ? OwnerKeyPath() : named;
  LOOM_ASSIGN(crypto::SigningKey owner, LoadOwnerKey(path));
  const auto& owners = run_->content.owners;
  if (std::find(owners.begin(), owners.end(), owner.public_key()) == owners.end()) {
    return MakeError(Code::kRefused, fmt::format("the key in {} does not own this run", path),
                     "do this where the run was made, or set LOOM_OWNER_KEY to an owner's key");
  }
  return owner;
}

// Changed settings, a round to go back to, or both.
Result<json::Object> Node::TakeOrder(const ControlRequest& request) {
  LOOM_ASSIGN(const crypto::SigningKey owner, OwnerKey(request.owner_key));
  collab::Order order;
  order.number = peer_->chain().head().body.orders + 1;
  order.revert = request.revert;
  if (!request.toml.empty()) {
    LOOM_ASSIGN(const train::RunSpec before,
                train::ParseCanonicalSpec(AsText(peer_->chain().settings())));
    LOOM_ASSIGN(const train::RunSpec after, train::Amend(before, request.toml));
    const std::string text = train::CanonicalSpec(after);
    if (text == AsText(peer_->chain().settings()) && !order.revert) {
      return MakeError(Code::kInvalid, "the run has these settings already");
    }
    const collab::Body& head = peer_->chain().head().body;
    const std::uint64_t done = after.sync.exact ? head.steps : head.round;
    if (after.sync.rounds != before.sync.rounds && after.sync.rounds != 0 &&
        after.sync.rounds <= done) {
      return MakeError(
          Code::kInvalid,
          fmt::format("sync.rounds = {}: the run has done {}", after.sync.rounds, done),
          fmt::format("{} or more ends it there for all; loom finish and loom leave "
                      "end one peer",
                      done + 1));
    }
    order.settings = ToBytes(AsBytes(text));
  }
  order.owner = owner.public_key();
  order.signature = owner.Sign(collab::kOrderDomain, order.Text(run_->id));
  Status taken;
  Step([&](collab::Peer& core, Time now, collab::Effects& out) {
    taken = core.TakeOrder(order, now, out);
  });
  LOOM_RETURN_IF_ERROR(taken);
  return json::Object{{"ok", json::Value(true)},
                      {"id", json::Value(IdOf(order, run_->id))},
                      {"order", json::Value(order.number)},
                      {"round", json::Value(peer_->chain().rounds())}};
}

json::Object Node::OrderedJson(const std::string& id) const {
  constexpr Round kLookBack = 200;
  const collab::Chain& chain = peer_->chain();
  for (Round r = chain.rounds(); r > 0 && r + kLookBack > chain.rounds(); --r) {
    const auto& order = chain.At(r).body.order;
    if (!order || IdOf(*order, run_->id) != id) continue;
    return {{"ok", json::Value(true)}, {"taken", json::Value(r)}};
  }
  const bool waits = peer_->order() && IdOf(*peer_->order(), run_->id) == id;
  return {{"ok", json::Value(true)}, {waits ? "waits" : "lost", json::Value(true)}};
}

json::Object Node::ResetJson() const {
  const auto view = peer_->ViewReset();
  if (!view) {
    return {{"ok", json::Value(true)}, {"era", json::Value(peer_->chain().head().body.era)}};
  }
  json::Array survivors;
  for (const auto& s : view->survivors) {
    survivors.push_back(json::Object{{"peer", json::Value(s.peer.Hex())},
                                     {"round", json::Value(s.head.round)},
                                     {"holds_state", json::Value(s.proved)},
                                     {"voted", json::Value(s.voted)}});
  }
  json::Array abandoned;
  for (const PeerId& p : view->abandoned) abandoned.push_back(json::Value(p.Hex()));
  return {{"ok", json::Value(true)},
          {"era", json::Value(peer_->chain().head().body.era)},
          {"sealed_for", json::Value(view->era)},
          {"survivors", json::Value(std::move(survivors))},
          {"abandoned", json::Value(std::move(abandoned))}};
}

// "seal", then "view" as often as wanted, then "commit" until the era has begun, or "cancel".
Result<json::Object> Node::Reset(const ControlRequest& request) {
  const std::string& step = request.step;
  if (step == "view") return ResetJson();
  LOOM_ASSIGN(const crypto::SigningKey owner, OwnerKey(request.owner_key));
  Status done;
  if (step == "seal" || step == "cancel") {
    collab::Seal seal;
    seal.era = std::max(peer_->chain().head().body.era + 1, peer_->sealed());
    seal.end = step == "cancel";
    seal.owner = owner.public_key();
    seal.signature = owner.Sign(collab::kSealDomain, seal.Text(run_->id));
    Step([&](collab::Peer& core, Time now, collab::Effects& out) {
      done = seal.end ? core.EndReset(seal, now, out) : core.BeginReset(seal, now, out);
    });
  } else if (step == "commit") {
    LOOM_ASSIGN(collab::ResetDraft draft, peer_->DraftReset(request.leave_behind));
    draft.record.owner = owner.Sign(draft.is_reset ? collab::kResetDomain : collab::kCertifyDomain,
                                    draft.record.hash.View());
    Step([&](collab::Peer& core, Time now, collab::Effects& out) {
      done = core.TakeSigned(std::move(draft.record), now, out);
    });
  } else {
    return MakeError(Code::kInvalid, fmt::format("unknown step '{}' of a reset", step));
  }
  LOOM_RETURN_IF_ERROR(done);
  return ResetJson();
}

}  // namespace loom::node
