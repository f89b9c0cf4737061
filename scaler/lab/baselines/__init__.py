"""The rivals, each implemented independently from its published law, one file each, all with the interface of ours."""
