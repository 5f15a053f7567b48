#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/byte_symbols.h"
#include "text/json_parts.h"
#include "text/unicode.h"

namespace loom::text {
namespace {

constexpr std::size_t kMaxTemplate = 16;

/// ByteLevel, or a Sequence of nothing else.
Status CheckDecoder(const json::Value* value) {
  if (IsNullOrMissing(value))
    return Refuse("BPE is supported with the decoder ByteLevel, not none");
  const std::string type = StringOf(*value, "type");
  if (type == "ByteLevel") return {};
  const json::Value* parts = value->Find("decoders");
  if (type == "Sequence" && parts != nullptr && parts->AsArray() != nullptr &&
      parts->AsArray()->size() == 1) {
    return CheckDecoder(&(*parts->AsArray())[0]);
  }
  return Refuse(fmt::format("the decoder '{}' is not supported", type.substr(0, 40)));
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeModel model, PreTokenizer pre)
    : model_(std::move(model)), pre_(std::move(pre)), vocab_size_(model_.vocab().size()) {}

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::FromJson(const json::Value& root) {
  LOOM_RETURN_IF_ERROR(CheckKeys(root, "the file",
                                 {"version", "truncation", "padding", "added_tokens", "normalizer",
                                  "pre_tokenizer", "post_processor", "decoder", "model"}));
  for (const std::string_view key : {"truncation", "padding"}) {
    if (!IsNullOrMissing(root.Find(key))) {
      return Refuse(fmt::format("'{}' would change ids; set it to null", key));
    }
  }
  const json::Value* model_value = root.Find("model");
  const json::Value* pre_value = root.Find("pre_tokenizer");
  if (model_value == nullptr || StringOf(*model_value, "type") != "BPE") {
    return Refuse("the model is not of type 'BPE'");
  }
  if (IsNullOrMissing(pre_value)) return Refuse("BPE is supported with a pre_tokenizer, not none");
  LOOM_ASSIGN(PreTokenizer pre, PreTokenizer::FromJson(*pre_value));
  LOOM_RETURN_IF_ERROR(CheckDecoder(root.Find("decoder")));
  LOOM_ASSIGN(BpeModel model, BpeModel::FromJson(*model_value));
  std::unique_ptr<BpeTokenizer> made(new BpeTokenizer(std::move(model), std::move(pre)));
  LOOM_RETURN_IF_ERROR(made->ReadNormalizer(root.Find("normalizer")));
  LOOM_ASSIGN(std::vector<AddedToken> added,
              ReadAddedTokens(root.Find("added_tokens"), BpeModel::kMaxVocab));
  LOOM_RETURN_IF_ERROR(made->AddTokens(std::move(added)));
  LOOM_RETURN_IF_ERROR(made->ReadPostProcessor(root.Find("post_processor")));
  return made;
}

Status BpeTokenizer::ReadNormalizer(const json::Value* value) {
  if (IsNullOrMissing(value)) return {};
  const std::string type = StringOf(*value, "type");
  if (type == "NFC") {
    nfc_ = true;
    return {};
  }
  const json::Value* parts = value->Find("normalizers");
  if (type == "Sequence" && parts != nullptr && parts->AsArray() != nullptr) {
    for (const json::Value& part : *parts->AsArray()) {
      if (StringOf(part, "type") == "Sequence") return Refuse("normalizer: nested Sequence");
      LOOM_RETURN_IF_ERROR(ReadNormalizer(&part));
    }
    return {};
  }
  return Refuse(fmt::format("the normalizer '{}' is not supported", type.substr(0, 40)));
}

Status BpeTokenizer::AddTokens(std::vector<AddedToken> tokens) {
  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : tokens) {
    const std::int32_t known = IdOf(token.content);
    if (known != Vocab::kNone && known != token.id) {
      return Refuse(fmt::format("the added token '{}' has the id {}, in the vocab it is {}",
                                token.content.substr(0, 40), token.id, known));
    }
    if (known == Vocab::kNone && model_.vocab().Has(token.id)) {
      return Refuse(fmt::format("the added token '{}' has the id {} of another token",
                                token.content.substr(0, 40), token.id));
    }
    vocab_size_ = std::max(vocab_size_, static_cast<std::uint32_t>(token.id) + 1);
    if (token.normalized) {
      if (nfc_) {
        LOOM_ASSIGN(token.content, Nfc(token.content));
      }
      normalized.push_back(token);
    } else {
      raw.push_back(token);
    }
  }
  added_ = std::move(tokens);
  added_by_id_.assign(vocab_size_, -1);
  for (std::size_t i = 0; i < added_.size(); ++i) {
    added_by_id_[static_cast<std::size_t>(added_[i].id)] = static_cast<std::int32_t>(i);
  }
  raw_ = AddedTokenMatcher(std::move(raw));
  normalized_ = AddedTokenMatcher(std::move(normalized));
  return {};
}

Status BpeTokenizer::ReadPostProcessor(const json::Value* value) {
  if (IsNullOrMissing(value)) return {};
  const std::string type = StringOf(*value, "type");
  if (type == "ByteLevel") return {};  // of offsets only
  if (type == "TemplateProcessing") return ReadTemplate(*value);
  const json::Value* parts = value->Find("processors");
  if (type == "Sequence" && parts != nullptr && parts->AsArray() != nullptr) {
    for (const json::Value& part : *parts->AsArray()) {
      if (StringOf(part, "type") == "Sequence") return Refuse("post_processor: nested Sequence");
      LOOM_RETURN_IF_ERROR(ReadPostProcessor(&part));
    }
    return {};
  }
  return Refuse(fmt::format("the post_processor '{}' is not supported", type.substr(0, 40)));
}

Status BpeTokenizer::ReadTemplate(const json::Value& value) {
  const json::Value* single = value.Find("single");
  const json::Value* special = value.Find("special_tokens");
  if (single == nullptr || single->AsArray() == nullptr ||
      single->AsArray()->size() > kMaxTemplate) {
    return Refuse(
        fmt::format("post_processor: 'single' is no list of at most {} parts", kMaxTemplate));
  }
  bool seen = false;
  for (const json::Value& part : *single->AsArray()) {
    if (part.Find("Sequence") != nullptr) {
      if (seen) return Refuse("post_processor: the text stands in the template twice");
      seen = true;
      continue;
    }
    const json::Value* token = part.Find("SpecialToken");
    const std::string name = token == nullptr ? "" : StringOf(*token, "id");
    const json::Value* known = special == nullptr ? nullptr : special->Find(name);
    const json::Value* ids = known == nullptr ? nullptr : known->Find("ids");
    if (ids == nullptr || ids->AsArray() == nullptr || ids->AsArray()->size() > kMaxTemplate) {
      return Refuse(
          fmt::format("post_processor: the special token '{}' has no ids", name.substr(0, 40)));
    }
    for (const json::Value& id : *ids->AsArray()) {
      if (id.AsUnsigned() == nullptr || *id.AsUnsigned() >= vocab_size_) {
        return Refuse(fmt::format("post_processor: an id of '{}' is not below {}",
                                  name.substr(0, 40), vocab_size_));
      }
      (seen ? behind_ : before_).push_back(static_cast<std::int32_t>(*id.AsUnsigned()));
    }
  }
  if (!seen) return Refuse("post_processor: the template leaves out the text");
  return {};
}

Result<std::vector<std::int32_t>> BpeTokenizer::Encode(std::string_view text, SpecialTokens special,
                                                       Lost* lost) const {
  if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return MakeError(Code::kInvalid, fmt::format("invalid UTF-8 at byte {}", bad));
  }
  Lost left_out;
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + before_.size() + behind_.size() + 1);
  if (special == SpecialTokens::kAdd) ids.insert(ids.end(), before_.begin(), before_.end());
  std::vector<TextPart> parts;
  raw_.Split(text, parts);
  for (const TextPart& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else if (nfc_) {
      LOOM_ASSIGN(const std::string normal, Nfc(part.text));
      LOOM_RETURN_IF_ERROR(EncodePart(normal, ids, left_out));
    } else {
      LOOM_RETURN_IF_ERROR(EncodePart(part.text, ids, left_out));
    }
  }
  if (special == SpecialTokens::kAdd) ids.insert(ids.end(), behind_.begin(), behind_.end());
  if (lost != nullptr) *lost = left_out;
  return ids;
}

Status BpeTokenizer::EncodePart(std::string_view text, std::vector<std::int32_t>& ids,
                                Lost& lost) const {
  std::vector<TextPart> parts;
  normalized_.Split(text, parts);
  std::deque<std::string> made;
  std::vector<std::string_view> pieces;
  for (const TextPart& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    LOOM_RETURN_IF_ERROR(pre_.Split(part.text, made, pieces));
    for (const std::string_view piece : pieces) model_.Encode(piece, ids, lost);
  }
  return {};
}

std::string BpeTokenizer::Decode(std::span<const std::int32_t> ids, ShowSpecial show) const {
  std::string out;
  for (const std::int32_t id : ids) {
    const std::int32_t added = id < 0 || static_cast<std::uint32_t>(id) >= vocab_size_
                                   ? -1
                                   : added_by_id_[static_cast<std::size_t>(id)];
    if (added < 0) {
      out += model_.vocab().BytesOf(id);
      continue;
    }
    const AddedToken& token = added_[static_cast<std::size_t>(added)];
    if (token.special && show == ShowSpecial::kNo) continue;
    const auto bytes = FromByteSymbols(token.content);
    out += bytes ? *bytes : token.content;
  }
  return out;
}

std::int32_t BpeTokenizer::IdOf(std::string_view token) const {
  for (const AddedToken& added : added_) {
    if (added.content == token) return added.id;
  }
  const auto bytes = FromByteSymbols(token);
  return model_.vocab().Find(bytes ? std::string_view(*bytes) : token);
}

std::optional<std::int32_t> BpeTokenizer::BeginId() const {
  if (!before_.empty()) return before_.front();
  for (const std::string_view usual :
       {"<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "[BOS]"}) {
    for (const AddedToken& added : added_) {
      if (added.special && added.content == usual) return added.id;
    }
  }
  return std::nullopt;
}

bool BpeTokenizer::lossless() const {
  if (nfc_) return false;
  for (std::size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (model_.vocab().Find({&byte, 1}) == Vocab::kNone) return false;
  }
  return true;
}

bool BpeTokenizer::IsBytes() const {
  if (nfc_ || pre_.adds_space() || !added_.empty() || !before_.empty() || !behind_.empty() ||
      !model_.merges().empty() || vocab_size_ != 256) {
    return false;
  }
  for (std::int32_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (model_.vocab().Find({&byte, 1}) != b) return false;
  }
  return true;
}

}  // namespace loom::text
