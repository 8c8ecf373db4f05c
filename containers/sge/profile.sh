# What a site's module would set. The commands in /usr/bin are wrappers that cost ten times the time.
export SGE_ROOT=/var/lib/gridengine SGE_CELL=default SGE_ARCH=lx-amd64
export SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445
case ":$PATH:" in
    *:/usr/lib/gridengine:*) ;;
    *) PATH=/usr/lib/gridengine:$PATH ;;
esac
export PATH
