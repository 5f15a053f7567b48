// loom log: the records of a run, one a line, oldest first, as a peer's folder holds them.
#include <fmt/core.h>

#include <map>
#include <memory>

#include "app/output.h"
#include "app/peer_folder_source.h"
#include "app/verbs.h"
#include "base/log.h"
#include "node/order_words.h"

namespace loom::app {
namespace {

struct Options {
  std::string dir;
  bool json = false;
};

json::Array ToJson(const collab::Range& range) {
  return {json::Value(range.first), json::Value(range.last)};
}

/// `settings`: those until the order.
json::Object ToJson(const collab::Order& order, ByteView settings) {
  json::Array changed;
  for (const train::SettingChange& c : node::ChangesBy(order, settings)) {
    changed.emplace_back(json::Object{{"key", json::Value(c.key)},
                                      {"before", json::Value(c.before)},
                                      {"after", json::Value(c.after)}});
  }
  return {{"number", json::Value(order.number)},
          {"revert", order.revert ? json::Value(*order.revert) : json::Value()},
          {"changed", json::Value(std::move(changed))}};
}

json::Object ToJson(const collab::Record& record, ByteView settings) {
  const collab::Body& body = record.body;
  json::Array members;
  for (const collab::Member& m : body.members) members.emplace_back(m.id.Hex());
  json::Array contributors;
  for (const collab::Contribution& c : body.contributions) {
    json::Array ranges;
    for (const collab::Range& range : c.ranges) ranges.emplace_back(ToJson(range));
    contributors.emplace_back(json::Object{{"peer", json::Value(c.peer.Hex())},
                                           {"worker", json::Value(c.worker)},
                                           {"tokens", json::Value(c.tokens)},
                                           {"ranges", json::Value(std::move(ranges))}});
  }
  json::Array fates;
  for (const collab::RangeFate& f : body.fates) {
    fates.emplace_back(json::Object{{"worker", json::Value(f.worker)},
                                    {"range", json::Value(ToJson(f.range))},
                                    {"fate", json::Value(collab::FateName(f.fate))}});
  }
  json::Object out{{"era", json::Value(body.era)},
                   {"round", json::Value(body.round)},
                   {"kind", json::Value(collab::KindName(body.kind))},
                   {"parent", json::Value(body.parent.Hex())},
                   {"hash", json::Value(record.hash.Hex())},
                   {"root", json::Value(body.root.Hex())},
                   {"members", json::Value(std::move(members))},
                   {"contributors", json::Value(std::move(contributors))},
                   {"fates", json::Value(std::move(fates))},
                   {"term", json::Value(record.term)},
                   {"tokens", json::Value(body.tokens)}};
  if (body.order) out.emplace_back("order", json::Value(ToJson(*body.order, settings)));
  return out;
}

std::string ToLine(const collab::Record& record, ByteView settings) {
  const collab::Body& body = record.body;
  std::string line =
      fmt::format("{:>6}  {}  root {}  {}  {} tokens", body.round,
                  fmt::format("{:7}", collab::KindName(body.kind)), body.root.Short(),
                  Counted(body.members.size(), "peer"), HumanCount(body.tokens));
  std::map<PeerId, std::uint64_t> worked;
  for (const collab::Contribution& c : body.contributions) worked[c.peer] += c.tokens;
  for (const auto& [peer, tokens] : worked) {
    line += fmt::format("  {} +{}", peer.Short(), HumanCount(tokens));
  }
  std::uint64_t lost = 0;
  std::uint64_t returned = 0;
  for (const collab::RangeFate& f : body.fates) {
    if (f.fate == collab::Fate::kLost) lost += f.range.size();
    if (f.fate == collab::Fate::kReturned) returned += f.range.size();
  }
  if (lost > 0) line += fmt::format("  {} samples lost", HumanCount(lost));
  if (returned > 0) line += fmt::format("  {} samples given back", HumanCount(returned));
  if (record.term > 0) line += fmt::format("  term {}", record.term);
  if (body.kind == collab::Kind::kReset) line += fmt::format("  era {} begins", body.era);
  if (body.order) {
    line +=
        fmt::format("  order {}: {}", body.order->number, node::OrderWords(*body.order, settings));
  }
  return line;
}

Status ShowLog(const Options& options) {
  LOOM_ASSIGN(const std::string dir, FindPeerFolder(options.dir));
  LOOM_ASSIGN(const FolderRecords folder, ReadFolderRecords(dir));
  Output out(options.json);
  const auto settings_before = [&](const collab::Record& record) -> ByteView {
    ByteView settings = folder.run.content.spec;
    if (!record.body.order) return settings;
    for (const collab::Record& r : folder.records) {
      if (r.body.round >= record.body.round) break;
      if (r.body.order && !r.body.order->settings.empty()) settings = r.body.order->settings;
    }
    return settings;
  };
  const auto show = [&](const collab::Record& record) {
    out.Event(ToJson(record, settings_before(record)));
    if (!options.json) out.SayLine(ToLine(record, settings_before(record)));
  };
  if (!options.json) {
    out.Say("run {} ({})", Printable(folder.run.content.name), folder.run.id.Hex());
  }
  show(folder.run.genesis);
  for (const collab::Record& record : folder.records) show(record);
  std::vector<std::string> notes = folder.notes;
  LOOM_ASSIGN(const std::vector<collab::Record> orphans, ReadOrphans(dir, notes));
  for (const collab::Record& record : orphans) {
    json::Object object = ToJson(record, settings_before(record));
    object.emplace_back("orphaned", json::Value(true));
    out.Event(object);
    if (!options.json)
      out.SayLine(ToLine(record, settings_before(record)) + "  orphaned by a reset");
  }
  for (const std::string& note : notes) Log(LogLevel::kWarn, "log", "{}", note);
  return {};
}

}  // namespace

Verb LogVerb() {
  auto options = std::make_shared<Options>();
  return {.name = "log",
          .summary = "List the records of a run, oldest first",
          .example = "loom log --dir loom-run-1 --json",
          .declare =
              [options](Args& args) {
                args.Option("--dir", "DIR", options->dir,
                            "Folder of a peer, running or not; default: this folder or the only "
                            "./loom-*");
                args.Flag("--json", options->json,
                          "One object a record: era, round, kind, parent, hash, root, members, "
                          "contributors, fates, term, tokens; order, where one is taken up");
              },
          .run = [options] { return ShowLog(*options); }};
}

}  // namespace loom::app
