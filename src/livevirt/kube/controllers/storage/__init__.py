"""Claims and volumes where no cluster provides them: directories of disk images."""
