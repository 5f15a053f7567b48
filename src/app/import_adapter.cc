// The base model is looked at where the adapter's configuration names a folder of this machine.
#include "app/import_adapter.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "app/model_source.h"
#include "app/output.h"
#include "base/human.h"
#include "base/printable.h"
#include "base/toml.h"
#include "train/hf_adapter.h"
#include "train/start_model.h"

namespace loom::app {
namespace {

/// The last parts of the modules' names, each once.
std::set<std::string_view> ModuleNames(const model::Tuning& tuning) {
  std::set<std::string_view> names;
  for (const std::string_view target : tuning.lora_targets)
    names.insert(target.substr(target.rfind('.') + 1));
  return names;
}

}  // namespace

Status ImportAdapter(const std::string& folder, bool json) {
  LOOM_ASSIGN(const train::AdapterFolder adapter, train::AdapterFolder::Open(folder));
  std::uint64_t values = 0, bytes = 0;
  for (const tensor::TensorView& view : adapter.tensors()) {
    values += view.Numel();
    bytes += view.data.size();
  }
  const bool at_hand = !adapter.base.empty() && IsHfFolder(adapter.base);
  if (at_hand) {
    LOOM_ASSIGN(const train::StartModel base, train::OpenStartModel(adapter.base));
    LOOM_RETURN_IF_ERROR(train::ReadAdapter(folder, base.config));
  }
  const model::Tuning& tuning = adapter.tuning;
  json::Array modules;
  for (const std::string& target : tuning.lora_targets) modules.emplace_back(target);
  Output out(json);
  out.Event({{"folder", folder},
             {"adapter", "lora"},
             {"rank", tuning.lora_rank},
             {"alpha", static_cast<double>(tuning.lora_alpha)},
             {"modules", std::move(modules)},
             {"parameters", values},
             {"bytes", bytes},
             {"base", adapter.base},
             {"base_found", at_hand}});
  std::error_code ignored;
  const auto absolute = [&](const std::string& path) {
    return std::filesystem::absolute(path, ignored).lexically_normal().string();
  };
  const std::string base = at_hand ? adapter.base : "BASE-MODEL";
  out.Say("{}: a LoRA adapter in PEFT's format, {} values ({})", folder, HumanCount(values),
          HumanBytes(static_cast<double>(bytes)));
  out.Say("additions  rank {}, alpha {}, to {}", tuning.lora_rank, tuning.lora_alpha,
          OneLine(fmt::format("{}", fmt::join(ModuleNames(tuning), ", "))));
  out.Say("base       {}", adapter.base.empty() ? "it names none: give its model's folder"
                           : at_hand ? fmt::format("{}, to which it belongs", adapter.base)
                                     : fmt::format("{}, no model folder here: give its folder",
                                                   OneLine(adapter.base)));
  out.Say(
      "next: loom import {} --out DIR writes a run.toml; the adapter is trained further with\n\n"
      "[model]\nfrom = {}\n\n[tune]\nfrom = {}",
      ShellWord(base), TomlQuote(at_hand ? absolute(base) : base), TomlQuote(absolute(folder)));
  return {};
}

}  // namespace loom::app
