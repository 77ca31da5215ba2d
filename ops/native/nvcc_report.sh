#!/bin/sh
# Compiles by nvcc and keeps what it says of the kernels: OBJECT.ptxas, and the PTX in OBJECT.ptx/.
# Usage: nvcc_report.sh NVCC ARGUMENTS... .ci/gpu-report reads them.
for argument; do
  if [ "$previous" = -o ]; then object=$argument; fi
  previous=$argument
done
case " $* " in
  *" -c "*) ;;
  *) exec "$@" ;;
esac
rm -rf "$object.ptx"
mkdir -p "$object.ptx"
"$@" -Xptxas=-v --keep "--keep-dir=$object.ptx" 2>"$object.ptxas"
code=$?
# Of a build that works, its warnings alone.
if [ $code = 0 ]; then
  grep -i warning "$object.ptxas" >&2
else
  cat "$object.ptxas" >&2
fi
find "$object.ptx" -type f ! -name '*.ptx' -delete
exit $code
