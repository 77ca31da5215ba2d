#!/bin/sh
# Compiles by ccache. Usage: ccache.sh ROOT CCACHE COMPILER ARGUMENTS...
# Paths below ROOT do not count, so that a second clone takes what the first one compiled.
export CCACHE_BASEDIR="$1" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
shift
# With -fpch-preprocess GCC reads the precompiled header that is there while it makes it anew, and
# ccache takes it for what the sources say.
case " $* " in
  *" c++-header "*)
    for argument; do
      if [ "$previous" = -o ]; then rm -f "$argument"; fi
      previous=$argument
    done
    ;;
esac
exec "$@"
