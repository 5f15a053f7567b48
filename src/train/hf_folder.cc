// Opening and reading a model folder; see hf_folder.h.
#include "train/hf_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "train/hf_texts.h"
#include "train/hf_weights.h"

namespace loom::train {

namespace fs = std::filesystem;

namespace {

/// The texts beside the weights. What Loom only carries must at least be what its name says.
Status ReadTexts(const std::string& folder, HfTexts& texts) {
  for (const HfTextFile& file : kHfTextFiles) {
    const std::string path = InFolder(folder, file.name);
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    LOOM_ASSIGN(std::string text, ReadFile(path, file.max_bytes));
    LOOM_RETURN_IF_ERROR(CheckHfText(file.name, text));
    texts.files.emplace(file.name, std::move(text));
  }
  return {};
}

}  // namespace

HfFolder::HfFolder() = default;
HfFolder::HfFolder(HfFolder&&) noexcept = default;
HfFolder::~HfFolder() = default;

Result<HfFolder> HfFolder::Open(const std::string& folder) {
  const auto open = [&]() -> Result<HfFolder> {
    HfFolder out;
    out.path_ = folder;
    LOOM_ASSIGN(const std::string config_json,
                ReadFile(InFolder(folder, kHfConfig), kMaxHfJsonBytes));
    LOOM_ASSIGN(out.config, ParseHfConfig(config_json));
    LOOM_ASSIGN(out.texts.token_ids, ParseTokenIds(config_json));
    LOOM_ASSIGN(out.grid, model::MakeGrid(out.config));
    LOOM_ASSIGN(HfWeights weights, HfWeights::Open(folder));
    out.files_ = std::make_unique<HfWeights>(std::move(weights));
    LOOM_ASSIGN(out.tensors, out.files_->Match(out.grid, out.config));
    LOOM_RETURN_IF_ERROR(ReadTexts(folder, out.texts));
    return out;
  };
  auto opened = open();
  if (!opened) return std::move(opened).error().Context(fmt::format("model folder '{}'", folder));
  return opened;
}

Result<std::unique_ptr<data::Tokenizer>> HfFolder::ReadTokenizer() const {
  const auto read = [&]() -> Result<std::unique_ptr<data::Tokenizer>> {
    const auto found = texts.files.find(kHfTokenizer);
    if (found == texts.files.end()) {
      return MakeError(Code::kNotFound, fmt::format("'{}' holds no {}", path_, kHfTokenizer),
                       "without one the model takes ids only: loom eval --ids FILE --logits FILE");
    }
    LOOM_ASSIGN(auto tokenizer, data::Tokenizer::FromJson(AsBytes(found->second)));
    if (tokenizer->vocab_size() > config.vocab) {
      return MakeError(Code::kInvalid,
                       fmt::format("the tokenizer has {} ids, the model {}",
                                   tokenizer->vocab_size(), config.vocab),
                       "the folder's tokenizer.json belongs to another model");
    }
    return tokenizer;
  };
  auto tokenizer = read();
  if (!tokenizer)
    return std::move(tokenizer).error().Context(fmt::format("model folder '{}'", path_));
  return tokenizer;
}

Result<HfModel> ImportHfFolder(const std::string& folder) {
  LOOM_ASSIGN(HfFolder opened, HfFolder::Open(folder));
  HfModel out;
  LOOM_ASSIGN(out.weights, agreed::FlatBuffer::Allocate(opened.grid.flat_size()));
  LOOM_RETURN_IF_ERROR(opened.ReadWeights(opened.grid, out.weights.span()));
  if (auto tokenizer = opened.ReadTokenizer()) {
    out.tokenizer = std::move(*tokenizer);
  } else {
    out.no_tokenizer = std::move(tokenizer).error();
  }
  out.config = opened.config;
  out.grid = std::move(opened.grid);
  out.texts = std::move(opened.texts);
  return out;
}

}  // namespace loom::train
