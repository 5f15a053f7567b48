// A file of tokens of nanoGPT or llm.c: what is accepted has exactly the ids that its size and
// header promise. The first byte: bit 0 llm.c (else nanoGPT); then the file.
#include "data/token_file.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const bool llmc = in.Byte() % 2 == 1;
  const ByteView file = in.Rest();
  data::ViewInput input(file);
  std::uint64_t ids = 0;
  const Status read =
      data::ReadTokenFile(input, llmc ? data::TokenFileKind::kLlmC : data::TokenFileKind::kNanoGpt,
                          [&](std::span<const std::int32_t> some) -> Status {
                            for (const std::int32_t id : some)
                              fuzz::Expect(id >= 0, "no id is negative");
                            ids += some.size();
                            return {};
                          });
  if (!read.ok()) {
    fuzz::ExpectGoodError(read.error());
    return 0;
  }
  const std::size_t bytes = llmc ? file.size() - 1024 : file.size();
  fuzz::Expect(ids * 2 == bytes || (llmc && ids * 4 == bytes), "every byte belongs to an id");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const auto llmc = [](std::uint32_t magic, std::uint32_t version, std::uint32_t count) {
    Script file;
    file.Byte(1).Int(magic).Int(version).Int(count);
    for (int i = 3; i < 256; ++i) file.Int(std::uint32_t{0});
    return file;
  };
  seeds.Add("nanogpt", Script().Byte(0).Int(std::uint16_t{50256}).Int(std::uint16_t{15496}));
  seeds.Add("gpt2", llmc(20240520, 1, 2).Int(std::uint16_t{50256}).Int(std::uint16_t{15496}));
  seeds.Add("llama3", llmc(20240801, 7, 1).Int(std::uint32_t{128000}));
  seeds.AddRefused("short", llmc(20240520, 1, 2).Int(std::uint16_t{50256}).bytes());
}
