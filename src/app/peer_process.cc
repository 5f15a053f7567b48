#include "app/peer_process.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "app/folders.h"
#include "app/interrupt.h"
#include "app/peer_folder_source.h"
#include "node/run_start.h"
#include "train/start_model.h"

namespace loom::app {

Result<train::RunFile> LoadRunOf(const std::string& run_toml, const std::string& dir) {
  const auto gone = [](const auto& opened) {
    return !opened.ok() && opened.error().code == Code::kNotFound;
  };
  train::OpenStart open;
  open.model = [&](const std::string& from, const train::LocalConfig& local) {
    auto model = train::OpenStartModel(from);
    if (!gone(model)) return model;
    auto own = StartOfFolder(dir.empty() ? local.dir : dir);
    return own ? std::move(own) : std::move(model);
  };
  open.adapter = [&](const std::string& from, const model::ModelConfig& network,
                     const train::LocalConfig& local) {
    auto tuning = train::OpenStartAdapter(from, network);
    if (!gone(tuning)) return tuning;
    auto own = AdapterOfFolder(dir.empty() ? local.dir : dir);
    return own ? std::move(own) : std::move(tuning);
  };
  return train::LoadRun(run_toml, open);
}

Status CheckSameRun(const train::RunFile& asked, const node::Node& node, const std::string& dir) {
  const node::Run& run = node.run();
  const std::string hint = "give another --dir, or the run.toml that the folder began with";
  if (asked.model_from.empty() != run.content.start.empty()) {
    return MakeError(Code::kConflict,
                     fmt::format("{} holds a run that started from {}", dir,
                                 run.content.start.empty() ? "drawn weights, not from model.from"
                                                           : "a model, and model.from names none"),
                     hint);
  }
  if (const bool adapter = node::StartsFromAdapter(run.content);
      asked.tune_from.empty() == adapter) {
    return MakeError(
        Code::kConflict,
        fmt::format("{} holds a run that started from {}", dir,
                    adapter ? "an adapter, and tune.from names none" : "no adapter, not tune.from"),
        hint);
  }
  train::RunSpec spec = asked.spec;
  spec.model.vocab = run.spec.model.vocab;
  spec.data.paths = run.spec.data.paths;
  LOOM_RETURN_IF_ERROR(train::ResolveSpec(spec));
  const auto differences =
      train::ChangesOf(train::CanonicalSpec(spec), train::CanonicalSpec(run.spec));
  if (differences.empty()) return {};
  // What follows from others comes behind it.
  const auto of_length = std::ranges::find(differences, "sync.rounds", &train::SettingChange::key);
  const bool length = of_length != differences.end();
  const train::SettingChange& first = length ? *of_length : differences.front();
  return MakeError(Code::kConflict,
                   fmt::format("{} holds a run with other settings: {} is {} in run.toml, {} in "
                               "that run",
                               dir, first.key, first.before, first.after),
                   length ? "loom amend sync.rounds=N changes a living run; one that has finished "
                            "goes on as a new run from its model (loom export, [model] from)"
                          : hint);
}

Status RunPeer(PeerProcess process, const std::function<Status(node::Node&)>& prepare,
               const BeforeRun& before_run) {
  Output out(process.json);
  const std::atomic<bool>& interrupted = InterruptFlag();
  const std::string dir = ShellWord(process.node.dir);
  LOOM_ASSIGN(FreshFolder folder, FreshFolder::Make(process.node.dir));
  process.node.final_loss = process.node.final_loss || !process.json;
  process.node.event = [&out](const json::Object& object) { out.Event(object); };
  process.node.say = [&out](const std::string& line) { out.SayLine(line); };
  process.node.progress = [&out](const std::string& line) { out.Progress(line); };
  LOOM_ASSIGN(const std::unique_ptr<node::Node> node, node::Node::Open(std::move(process.node)));
  folder.Own();
  LOOM_RETURN_IF_ERROR(prepare(*node));
  LOOM_RETURN_IF_ERROR(node->Listen());
  if (interrupted.load()) {
    out.Event({{"event", json::Value("done")},
               {"state", json::Value("stopped")},
               {"reason", json::Value("interrupted before it began")}});
    out.Say("Stopped: interrupted before it began.");
    return {};
  }
  if (before_run) LOOM_RETURN_IF_ERROR(before_run(*node, out));
  if (node->has_run()) folder.Keep();

  std::atomic<bool> ended{false};
  std::thread watcher([&] {  // a signal handler may only set a flag; this thread reads it
    while (!ended.load()) {
      if (interrupted.load()) node->Interrupt();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  const auto end = node->Live();
  ended.store(true);
  watcher.join();
  if (node->has_run()) folder.Keep();
  if (!end) return end.error();
  if (end->state == collab::PeerState::kFailed) return MakeError(end->code, end->reason, end->hint);
  out.Say("Stopped: {}", end->reason);
  if (end->finished && !out.json())
    out.Say("next: loom generate {}    or: loom export {} --out my-model", dir, dir);
  return {};
}

}  // namespace loom::app
