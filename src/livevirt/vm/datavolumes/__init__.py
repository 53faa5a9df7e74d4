"""Claims, volumes and DataVolumes where no cluster provides them: directories of disk images.

- A volume of ours is the directory `<root>/<volume name>/`; its disk is the raw file `disk.img`.
- A directory exists only while a PersistentVolume of its name does: the object is written first
  and goes last, so a kill at any moment leaves nothing behind that is never removed.
- `disk.img` appears complete or not at all: it is written elsewhere in the directory, synced, and
  then given its name, which never replaces a disk that is there.
- A claim that something uses stays until that ends; its data goes only after the claim.
- A DataVolume that has Succeeded or Failed is never filled again.
"""
