// The pieces of an object as a donor names them, and data files on their way in: what is accepted
// is written back byte for byte, and its pieces make its size.
#include "store/piece_list.h"

#include <algorithm>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  const ByteView bytes = fuzz::View(data, size);
  const auto list = store::PieceList::Decode(bytes);
  if (!list.ok()) {
    fuzz::ExpectGoodError(list.error());
    return 0;
  }
  fuzz::Expect(std::ranges::equal(list.value().Encode(), bytes),
               "a list is written back as it was");
  (void)list.value().Root();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < list.value().pieces.size(); ++i) {
    const std::size_t piece = list.value().PieceSize(i);
    fuzz::Expect(piece <= store::kPieceBytes, "no piece is larger than a piece");
    total += piece;
  }
  fuzz::Expect(total == list.value().size, "the pieces make the size");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  seeds.Add("empty", store::PieceList::Of({}).Encode());
  seeds.Add("one", store::PieceList::Of(AsBytes("one piece")).Encode());
  seeds.Add("three", store::PieceList{2 * store::kPieceBytes + 7, std::vector<Hash>(3)}.Encode());
  seeds.AddRefused("short",
                   store::PieceList{2 * store::kPieceBytes, std::vector<Hash>(3)}.Encode());
}
